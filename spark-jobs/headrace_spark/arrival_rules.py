"""Rules about what arrived on the target, and when: the mirror's own faults."""

from collections.abc import Iterator

from headrace.api import Verdict
from headrace.mirror_test import Kind, allowed_counts
from headrace_spark.evidence import Evidence, Objection
from headrace_spark.sentences import few, for_example, messages

_WORDS = {  # the heaviest first
    Kind.MISSING: "missing on the target",
    Kind.REORDERED: "out of order on the target",
    Kind.CORRUPTED: "changed on the target",
    Kind.DUPLICATED: "repeated on the target",
    Kind.UNEQUAL_OFFSETS: "at another offset than on the source",
    Kind.ALIEN: "on the target, sent by nobody",
    Kind.REPLAYED: "of earlier runs, and came to the target while this one ran",
}


def records(evidence: Evidence) -> Iterator[Objection]:
    """Counts of records against what the test allows."""
    allowed = allowed_counts(evidence.run.test.spec.budgets)
    for kind in (kind for kind in _WORDS if kind in allowed):
        words, most = _WORDS[kind], allowed[kind]
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
    """A partition whose end did not arrive has not arrived."""
    late = evidence.measured.late if evidence.measured else ()
    if open_or_late := tuple(dict.fromkeys((*evidence.open_sentinels, *late))):
        yield Objection(
            Verdict.FAILED,
            f"the last record of {few(open_or_late)} did not arrive within "
            f"{evidence.run.test.spec.settle_seconds} s (settleSeconds)",
        )


def latency(evidence: Evidence) -> Iterator[Objection]:
    """Latency against its budget; that of messages that nobody measured is not known."""
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
