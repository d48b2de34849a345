"""Verdict of a mirror test, from rules over the evidence.

Each rule yields objections. An objection is a sentence and the verdict that it causes. Failed
outweighs Inconclusive: a record that is on the source and not on the target is missing, even if
something else is unknown. Inconclusive outweighs Passed, because anything that could not be
observed must not count as correct.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.api import Verdict
from headrace.mirror_test import (
    Check,
    Counts,
    Example,
    Fault,
    FindingType,
    LoadManifest,
    MirrorTestRun,
    ProbeMeasurements,
    Rehearsed,
    allowed_counts,
)
from headrace.sentences import first_few


@dataclass(frozen=True)
class Evidence:
    """Facts that determine a verdict."""

    run: MirrorTestRun
    manifest: LoadManifest
    counts: Counts
    examples: dict[FindingType, tuple[Example, ...]]
    open_sentinels: tuple[str, ...]
    """Source partitions without their end sentinel on the target, as ``topic-partition``."""
    contradictions: tuple[str, ...]
    """Descriptions of streams whose source records differ from the acknowledged ones."""
    measured: ProbeMeasurements | None
    """Measurements of the probe, or None if it gave no result."""
    faults: tuple[Fault, ...]
    rehearsed: Rehearsed | None = None


@dataclass(frozen=True)
class Objection:
    """Sentence that explains a verdict. With the verdict Passed it is a warning."""

    verdict: Verdict
    sentence: str


def messages(count: int) -> str:
    """Return the number of messages as the subject of a sentence, with its verb."""
    return f"{count:,} message is" if count == 1 else f"{count:,} messages are"


def for_example(examples: tuple[Example, ...]) -> str:
    """Return the first example as the end of a sentence, or an empty string."""
    if not examples:
        return ""
    first = examples[0]
    what = f" ({first.differs})" if first.differs else ""
    if first.differs == "offset" and first.source:
        what = f", and at {first.source.offset} on the source"
    at = (
        "" if first.offset is None else f" at {first.topic}-{first.partition} offset {first.offset}"
    )
    return f", for example number {first.seq} of producer {first.producer}{at}{what}"


def few(names: tuple[str, ...], limit: int = 3) -> str:
    """Return the first names, and the number of the other names."""
    return first_few(names, limit)


_WORDS = {  # the most severe first
    FindingType.MISSING: "missing on the target",
    FindingType.REORDERED: "out of order on the target",
    FindingType.CORRUPTED: "changed on the target",
    FindingType.DUPLICATED: "repeated on the target",
    FindingType.UNEQUAL_OFFSETS: "at another offset than on the source",
    FindingType.ALIEN: "on the target, and were never sent",
    FindingType.REPLAYED: "of earlier runs, and arrived on the target during this run",
}


def records(evidence: Evidence, kind: FindingType) -> Iterator[Objection]:
    """Yield an objection if there are findings of a type, or a warning if the test allows them."""
    most, words = allowed_counts(evidence.run.test.spec.budgets)[kind], _WORDS[kind]
    found = getattr(evidence.counts, kind.field)
    if found and (most is None or found <= most):
        yield Objection(Verdict.PASSED, f"{messages(found)} {words} (allowed)")
    elif found:
        yield Objection(
            Verdict.FAILED,
            f"{messages(found)} {words} (allowed: {most:,})"
            f"{for_example(evidence.examples.get(kind, ()))}",
        )


def sentinels(evidence: Evidence) -> Iterator[Objection]:
    """Yield an objection if an end sentinel is missing or late on the target."""
    late = evidence.measured.late if evidence.measured else ()
    if open_or_late := tuple(dict.fromkeys((*evidence.open_sentinels, *late))):
        yield Objection(
            Verdict.FAILED,
            f"the last record of {few(open_or_late)} did not arrive within "
            f"{evidence.run.test.spec.settle_seconds} s (settleSeconds)",
        )


def latency(evidence: Evidence) -> Iterator[Objection]:
    """Yield objections if the latency exceeds its budget, or if messages were not measured."""
    most = evidence.run.test.spec.budgets.latency_p99_ms
    unsaid = Verdict.PASSED if most is None else Verdict.INCONCLUSIVE
    measured = evidence.measured
    if measured is None:
        yield Objection(unsaid, "latency was not measured: the probe gave no result (probe.log)")
        return
    if measured.unmeasured_topics:
        yield Objection(
            unsaid,
            f"latency of {few(measured.unmeasured_topics)} was not measured: "
            "not on the target when the load began",
        )
    if measured.before_sent:
        yield Objection(
            unsaid,
            f"{messages(measured.before_sent)} seen before they were sent: the clocks of the "
            "machines differ, so latencies are wrong by as much",
        )
    elsewhere = evidence.counts.missing + evidence.counts.source_lost
    unseen = evidence.counts.acknowledged - elsewhere - measured.count
    if unseen > 0 and not measured.unmeasured_topics:
        yield Objection(unsaid, f"latency was not measured of {unseen:,} messages that arrived")
    p99 = measured.quantile_ms(0.99)
    above = most is not None and measured.count > 0 and p99 > most
    if measured.behind > measured.count // 100:
        yield Objection(
            Verdict.INCONCLUSIVE if above else Verdict.PASSED,
            f"{messages(measured.behind)} seen late by the probe, which did not keep up: latencies "
            "are too long by as much; give it more CPU or more load.producers, or send less",
        )
    elif above:
        yield Objection(Verdict.FAILED, f"latency p99 is {p99:,} ms (allowed: {most:,} ms)")


def recovery(evidence: Evidence) -> Iterator[Objection]:
    """Yield objections to faults that were not injected and recoveries that exceed the budget."""
    most = evidence.run.test.spec.budgets.recovery_seconds
    for fault in evidence.faults:
        action = fault.step.action
        if fault.at_ms is None:
            yield Objection(
                Verdict.INCONCLUSIVE, f"{action} was requested and not injected: {fault.error}"
            )
        elif fault.recovery_seconds is None:
            unseen = Verdict.PASSED if most is None else Verdict.FAILED
            yield Objection(
                unseen if fault.watched else Verdict.INCONCLUSIVE,
                f"recovery from {action} was not observed: {fault.error}",
            )
        elif most is not None and fault.recovery_seconds > most:
            yield Objection(
                Verdict.FAILED,
                f"recovery from {action} took {fault.recovery_seconds:.1f} s (allowed: {most} s)",
            )


def rehearsal(evidence: Evidence) -> Iterator[Objection]:
    """Yield objections if consumers reread or skipped too many messages after a fail-over."""
    budgets, rehearsed = evidence.run.test.spec.budgets, evidence.rehearsed
    if rehearsed is None:
        return
    if rehearsed.not_undone:
        why = (
            f"the rehearsed fail-over could not be undone ({rehearsed.not_undone}): run "
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
            f"{messages(skipped)} on the target, and not delivered to groups that resumed there "
            f"after the fail-over (allowed: {budgets.skipped:,})",
        )


RATE_REACHED = 0.95
"""Minimum share of ``messagesPerSecond``. A lower rate causes a warning."""


def load(evidence: Evidence) -> Iterator[Objection]:
    """Yield objections if the load was not sent or recorded completely."""
    counts, manifest = evidence.counts, evidence.manifest
    for error in manifest.errors:
        yield Objection(Verdict.INCONCLUSIVE, f"the load stopped early: {error}")
    if not manifest.adds_up:
        yield Objection(
            Verdict.INCONCLUSIVE,
            "the manifest is not consistent: its partitions do not contain all messages that were "
            "sent and did not fail, so a part of the manifest is lost",
        )
    if absent := evidence.run.first_topics.keys() - {topic.name for topic in manifest.topics}:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"the manifest does not have {few(tuple(sorted(absent)))}, which the test names: "
            "it is unknown what was sent there",
        )
    if counts.acknowledged == 0:
        yield Objection(Verdict.INCONCLUSIVE, "the source acknowledged no message at all")
    if counts.unmanifested:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"{messages(counts.unmanifested)} on the source under this run's name and not in its "
            "manifest, which is therefore not complete"
            f"{for_example(evidence.examples.get(FindingType.UNMANIFESTED, ()))}",
        )
    if counts.unacknowledged:
        yield Objection(
            Verdict.PASSED,
            f"{messages(counts.unacknowledged)} on the source without an acknowledgement: "
            "the mirror may or may not have copied them",
        )


def source(evidence: Evidence) -> Iterator[Objection]:
    """Yield an objection if the source lost records. The mirror is not responsible for them."""
    if lost := evidence.counts.source_lost:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"{messages(lost)} acknowledged by the source and no longer on it, so the mirror is "
            f"not responsible{for_example(evidence.examples.get(FindingType.SOURCE_LOST, ()))}",
        )
    elif evidence.contradictions:
        yield Objection(
            Verdict.INCONCLUSIVE,
            "the source's messages differ from the acknowledged ones (by number and checksum): "
            f"{few(evidence.contradictions)}",
        )


def rate(evidence: Evidence) -> Iterator[Objection]:
    """Yield a warning if the load was lighter than requested."""
    asked = evidence.run.test.spec.load.messages_per_second
    reached = acknowledged_per_second(evidence.manifest, evidence.run.first_topics)
    if asked is None or reached is None:
        return
    topics = len(evidence.run.first_topics)
    if reached < RATE_REACHED * asked * topics:
        yield Objection(
            Verdict.PASSED,
            f"the load reached {_rate_text(reached / topics)} messages/s a topic, not the "
            f"{asked:,} requested: the producers or the source were too slow",
        )


def acknowledged_per_second(
    manifest: LoadManifest, topics: Iterable[str] | None = None
) -> float | None:
    """Return the acknowledged messages per second, of all topics or of ``topics``.

    The time is measured from the first message to the last acknowledgement. Return None if it is 0.
    """
    took_ms = manifest.finished_ms - manifest.started_ms
    if took_ms <= 0:
        return None
    count = manifest.acknowledged
    if topics is not None:
        count = sum(map(manifest.acknowledged_in, topics))
    return count * 1000 / took_ms


def _rate_text(per_second: float) -> str:
    """Return a rate with enough digits to distinguish it from one that is 5 % higher."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def objections(evidence: Evidence) -> dict[str, tuple[Objection, ...]]:
    """Return the objections by the name of the check, for all checks that the test requires."""
    spec = evidence.run.test.spec
    allowed = allowed_counts(spec.budgets)
    found = {kind.value: records(evidence, kind) for kind in _WORDS if kind in allowed}
    found |= {
        "arrival": sentinels(evidence),
        "source": source(evidence),
        "load": load(evidence),
        "latency": latency(evidence),
        "recovery": recovery(evidence),
        "rehearsal": rehearsal(evidence),
        "rate": rate(evidence),
    }
    is_asked = {
        "latency": spec.budgets.latency_p99_ms is not None,
        "recovery": bool(evidence.faults),
        "rehearsal": evidence.rehearsed is not None,
        "rate": spec.load.messages_per_second is not None,
    }
    listed = {name: tuple(by_rule) for name, by_rule in found.items()}
    return {name: some for name, some in listed.items() if some or is_asked.get(name, True)}


def checks(objections: Mapping[str, Iterable[Objection]]) -> tuple[Check, ...]:
    """Return the verdict of each check, with the sentences that explain it."""
    found = []
    for name, some in objections.items():
        verdict = max((one.verdict for one in some), key=_WEIGHTS.index, default=Verdict.PASSED)
        sentences = tuple(one.sentence for one in some if one.verdict is verdict)
        found.append(Check(name=name, verdict=verdict, sentences=sentences))
    return tuple(found)


_WEIGHTS = (Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.FAILED)


def judge(evidence: Evidence) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    """Return the verdict, its reasons and the warnings. The most severe reasons come first."""
    found = [objection for some in objections(evidence).values() for objection in some]

    def sentences(verdict: Verdict) -> tuple[str, ...]:
        return tuple(o.sentence for o in found if o.verdict is verdict)

    failed, unclear = sentences(Verdict.FAILED), sentences(Verdict.INCONCLUSIVE)
    warnings = (*evidence.manifest.warnings, *sentences(Verdict.PASSED))
    if failed or unclear:
        verdict = Verdict.FAILED if failed else Verdict.INCONCLUSIVE
        return verdict, (*failed, *unclear), warnings
    acknowledged = evidence.counts.acknowledged
    at = "" if evidence.counts.unequal_offsets != 0 else " at their source's offsets"
    passed = (
        f"all {acknowledged:,} acknowledged messages are on the target{at}, within every budget"
    )
    return Verdict.PASSED, (passed,), warnings
