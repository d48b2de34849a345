"""Faults and fail-overs of a mirror test: plan and outcome.

``chaos.json`` has them twice: as the plan, and as the outcome. Each step of a plan has an error,
which stays the outcome of a step that nobody reports.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.api import ChaosStep, Model, Rehearsal, TopicPartition
from headrace.mirror_test import documents


class Fault(Model):
    """One step of ``spec.chaos`` and its outcome."""

    step: ChaosStep
    """Requested step."""
    at_ms: int | None = None
    """When it was injected, in ms since 1970; absent: it was not."""
    acknowledged: int | None = None
    """Messages of the load that were acknowledged then."""
    percent: float | None = None
    """Percentage of the load that was acknowledged then."""
    driver: str | None = None
    """The driver, or broker, that it affected."""
    units: tuple[str, ...] = ()
    """The connectors and tasks of that driver."""
    recovery_seconds: float | None = None
    """Seconds until all of these units ran again. Absent if the recovery was not observed."""
    error: str | None = None
    """Reason why the fault was not injected or its recovery was not observed."""
    watched: bool = True
    """Whether the recovery was watched up to its time limit."""

    @property
    def outcome_if_unreported(self) -> "Fault":
        """Itself; while its recovery is timed, with the error that holds if nobody reports more."""
        if self.at_ms is None or self.recovery_seconds is not None or self.error:
            return self
        ended = "the Job that watched it ended before it did"
        return self.model_copy(update={"error": ended, "watched": False})


class Faults(Model):
    """All steps, in order."""

    faults: tuple[Fault, ...] = ()

    @property
    def steps(self) -> tuple[ChaosStep, ...]:
        """Requested steps."""
        return tuple(fault.step for fault in self.faults)

    def updated(self, outcomes: Iterable[Fault]) -> "Faults":
        """Return this plan with the outcomes of its first steps."""
        known = tuple(fault.outcome_if_unreported for fault in outcomes)
        return Faults(faults=(*known, *self.faults[len(known) :]))


def build_plan(steps: Iterable[ChaosStep], unreported: str) -> str:
    """Return the document of a plan; ``unreported`` is the error of a step without a report."""
    plan = Faults(faults=tuple(Fault(step=step, error=unreported) for step in steps))
    return plan.model_dump_json(by_alias=True, exclude_defaults=True, indent=1)


def read_plan(text: str, name: str) -> Faults:
    """Return a plan from its document; raise as ``documents.read_plan``."""
    return documents.read_plan(text, name, Faults)


# The outcome of a rehearsed fail-over: the records that each consumer group read on both sides,
# counted. In a cluster ``rehearsal.json`` is also the plan: it has the groups, and the error that
# remains the outcome of a rehearsal without a report.

RecordId = tuple[str, int]
"""Identity of a record on either cluster: source topic, and a hash of its unique value."""
Log = Mapping[RecordId, tuple[TopicPartition, int]]
"""Where the source has each record."""


class RehearsedGroup(Model):
    """One consumer group."""

    group: str
    committed: int
    """Records of the load that it had committed on the source."""
    reread: int
    """Records that it was delivered at the target though it had committed them, or that came
    twice."""
    skipped: int
    """Records of the target that it had not committed, and was not delivered."""


class Rehearsed(Model):
    """All groups of the run; or why there was no fail-over."""

    groups: tuple[RehearsedGroup, ...] = ()
    seconds: float | None = None
    """Duration of the fail-over, from the command to its end."""
    error: str | None = None
    """Error of the rehearsal. Absent: the fail-over succeeded, and all groups resumed."""
    not_undone: str | None = None
    """Why the flow is still failed over; absent: it is not."""


def group_names(run: str, asked: Rehearsal) -> list[str]:
    """Return the names of a run's consumer groups."""
    return [f"headrace-rehearsal-{run}-{number}" for number in range(asked.groups)]


def build_rehearsal(run: str, asked: Rehearsal, unreported: str) -> str:
    """Return the document of a plan; ``unreported`` is the error of a plan without a report."""
    groups = tuple(
        RehearsedGroup(group=name, committed=0, reread=0, skipped=0)
        for name in group_names(run, asked)
    )
    return Rehearsed(groups=groups, error=unreported).model_dump_json(by_alias=True, indent=1)


def read_rehearsal(text: str, name: str) -> Rehearsed:
    """Return a plan from its document; raise as ``documents.read_plan``."""
    return documents.read_plan(text, name, Rehearsed)


def count_group(
    group: str,
    source: Log,
    target: Iterable[RecordId],
    committed: Mapping[TopicPartition, int],
    delivered: Iterable[RecordId],
) -> RehearsedGroup:
    """Count the records that a group read again or skipped. Other writers' records do not count.

    Args:
        group: Name of the group.
        source: Records of the source.
        target: Records that exist on the target.
        committed: Next offset of the group in each partition of the source.
        delivered: Records that the group read on the target.
    """
    before = {
        record for record, (at, offset) in source.items() if offset < committed.get(at, offset)
    }
    due = (set(target) & source.keys()) - before
    times = Counter(record for record in delivered if record in source)
    return RehearsedGroup(
        group=group,
        committed=len(before),
        reread=sum(times.values()) - len(due & times.keys()),
        skipped=len(due - times.keys()),
    )
