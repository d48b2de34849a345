"""Rules about the load: whether the source had what a mirror can be judged by."""

from collections.abc import Iterable, Iterator

from headrace.api import Verdict
from headrace.mirror_test import Kind, LoadManifest
from headrace_spark.evidence import Evidence, Objection
from headrace_spark.sentences import few, for_example, messages

RATE_REACHED = 0.95
"""Of messagesPerSecond: below it, a reader should know that the load was lighter than asked for."""


def load(evidence: Evidence) -> Iterator[Objection]:
    """A mirror cannot be judged by what was never there to be mirrored."""
    counts, manifest = evidence.counts, evidence.manifest
    for error in manifest.errors:
        yield Objection(Verdict.INCONCLUSIVE, f"the load stopped early: {error}")
    if not manifest.adds_up:
        yield Objection(
            Verdict.INCONCLUSIVE,
            "the manifest does not add up: what was sent and did not fail is not what its "
            "partitions have, so a part of it is lost",
        )
    if absent := evidence.run.first_topics.keys() - {topic.name for topic in manifest.topics}:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"the manifest does not have {few(tuple(sorted(absent)))}, which the test names: "
            "nobody knows what was sent there",
        )
    if counts.acknowledged == 0:
        yield Objection(Verdict.INCONCLUSIVE, "the source acknowledged no message at all")
    if counts.unmanifested:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"{messages(counts.unmanifested)} on the source under this run's name and not in its "
            "manifest, which is therefore not complete"
            f"{for_example(evidence.examples.get(Kind.UNMANIFESTED, ()))}",
        )
    if counts.unacknowledged:
        yield Objection(
            Verdict.PASSED,
            f"{messages(counts.unacknowledged)} on the source without an acknowledgement: "
            "the mirror may have carried them or not",
        )


def source(evidence: Evidence) -> Iterator[Objection]:
    """The source's own losses are not the mirror's."""
    if lost := evidence.counts.source_lost:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"{messages(lost)} acknowledged by the source and no longer on it, no mirror can be "
            f"blamed{for_example(evidence.examples.get(Kind.SOURCE_LOST, ()))}",
        )
    elif evidence.contradictions:
        yield Objection(
            Verdict.INCONCLUSIVE,
            "the source does not hold what it acknowledged (by number and checksum): "
            f"{few(evidence.contradictions)}",
        )


def rate(evidence: Evidence) -> Iterator[Objection]:
    """A load that was lighter than asked for."""
    asked = evidence.run.test.spec.load.messages_per_second
    reached = acknowledged_per_second(evidence.manifest, evidence.run.first_topics)
    if asked is None or reached is None:
        return
    topics = len(evidence.run.first_topics)
    if reached < RATE_REACHED * asked * topics:
        yield Objection(
            Verdict.PASSED,
            f"the load reached {_rate_text(reached / topics)} messages/s a topic, not the "
            f"{asked:,} asked for: the producers or the source could not go faster",
        )


def acknowledged_per_second(
    manifest: LoadManifest, topics: Iterable[str] | None = None
) -> float | None:
    """Rate of the whole load, or of some topics, from its first message to the last
    acknowledgement."""
    took_ms = manifest.finished_ms - manifest.started_ms
    if took_ms <= 0:
        return None
    count = manifest.acknowledged
    if topics is not None:
        count = sum(map(manifest.acknowledged_in, topics))
    return count * 1000 / took_ms


def _rate_text(per_second: float) -> str:
    """With as many digits as distinguish it from one 5 % higher."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"
