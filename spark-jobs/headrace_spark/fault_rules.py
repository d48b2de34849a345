"""Rules about faults and fail-overs: how long recovery took, what consumers had again."""

from collections.abc import Iterator

from headrace.api import Verdict
from headrace_spark.evidence import Evidence, Objection
from headrace_spark.sentences import messages


def recovery(evidence: Evidence) -> Iterator[Objection]:
    """A fault that was not injected proves nothing; recovery from one has a budget."""
    most = evidence.run.test.spec.budgets.recovery_seconds
    for fault in evidence.faults:
        action = fault.step.action
        if fault.at_ms is None:
            yield Objection(
                Verdict.INCONCLUSIVE, f"{action} was asked for and not done: {fault.error}"
            )
        elif fault.recovery_seconds is None:
            unseen = Verdict.PASSED if most is None else Verdict.FAILED
            yield Objection(
                unseen if fault.watched else Verdict.INCONCLUSIVE,
                f"recovery from {action} was not seen: {fault.error}",
            )
        elif most is not None and fault.recovery_seconds > most:
            yield Objection(
                Verdict.FAILED,
                f"recovery from {action} took {fault.recovery_seconds:.1f} s (allowed: {most} s)",
            )


def rehearsal(evidence: Evidence) -> Iterator[Objection]:
    """What consumers were delivered again or not at all after a fail-over has budgets."""
    budgets, rehearsed = evidence.run.test.spec.budgets, evidence.rehearsed
    if rehearsed is None:
        return
    if rehearsed.not_undone:
        why = (
            f"the rehearsed fail-over could not be undone ({rehearsed.not_undone}): type "
            f"`headrace failover {evidence.run.flow} --abort`"
        )
        yield Objection(Verdict.INCONCLUSIVE, why)
    if rehearsed.error:
        why = f"the fail-over was not rehearsed: {rehearsed.error}"
        yield Objection(Verdict.INCONCLUSIVE, why)
        return
    most, again = budgets.reread_per_group, max(rehearsed.groups, key=lambda one: one.reread)
    if again.reread:
        over = sum(one.reread > most for one in rehearsed.groups)
        yield Objection(
            Verdict.FAILED if over else Verdict.PASSED,
            f"{again.group} was delivered {again.reread:,} messages again after the fail-over "
            f"(allowed: {most:,}; above that: {over} groups)",
        )
    if skipped := sum(one.skipped for one in rehearsed.groups):
        yield Objection(
            Verdict.FAILED if skipped > budgets.skipped else Verdict.PASSED,
            f"{messages(skipped)} on the target, and not delivered to groups that went on there "
            f"after the fail-over (allowed: {budgets.skipped:,})",
        )
