"""Mutation tests of records as brokers keep them: bytes, headers, end sentinels.

A case is a pair of topics of its own, so that one comparison judges all of them.
"""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from support.raw_records import Raw, raw, recognised

from headrace.api import MessageFormat, Partitioning, TopicPartition
from headrace.mirror_test import FindingType
from headrace.mirror_test.load import LoadedTopic, LoadManifest, Stream
from headrace_spark import checks, comparison, messages

TOPICS = ("orders", "users")
PARTITIONS = 2
SENT = 8
CUT = 2
"""Messages that the manifest of the case ``manifest-cut`` lacks, in each topic."""
NOW_MS = 1_795_000_000_000
EARLIER_MS = NOW_MS - 60_000


def partition_of(at: TopicPartition, run: str = "run", sent_ms: int = NOW_MS) -> list[Raw]:
    """Return a partition of the source: every message of one producer, then the sentinel."""
    producer = f"{run}-0-0"
    format = MessageFormat.BODY if at.topic.startswith("body") else MessageFormat.HEADERS
    writer = messages.MessageFactory(producer, 200, format)
    laid = [
        raw(at, offset, writer.message(at, seq, sent_ms), sent_ms, at.partition)
        for offset, seq in enumerate(range(at.partition, SENT, PARTITIONS))
    ]
    end = messages.sentinel(run, at, sent_ms, format)
    return [*laid, raw(at, len(laid), end, sent_ms, at.partition)]


Mutation = Callable[[list[Raw]], list[Raw]]
"""Change that a mirror makes to the records of both topics."""


def changing(rule: Callable[[Raw], bool], change: Callable[[Raw], Raw]) -> Mutation:
    return lambda laid: [change(r) if rule(r) else r for r in laid]


def first_end(record: Raw) -> bool:
    """Return whether this is the sentinel of the first topic's first partition."""
    at_home = record.topic.endswith("orders") and record.partition == 0
    return record.is_sentinel and at_home


def third(record: Raw) -> bool:
    return record.topic.endswith("orders") and (record.partition, record.offset) == (1, 2)


def other(topic: str) -> str:
    case, _, name = topic.partition(".")
    return f"{case}.{TOPICS[1 - TOPICS.index(name)]}"


def without(record: Raw, header: str) -> Raw:
    return record._replace(headers=tuple(h for h in record.headers if h[0] != header))


def tripled(laid: list[Raw]) -> list[Raw]:
    copies = [r._replace(offset=50 + n) for r in laid if first_end(r) for n in range(2)]
    return [*laid, *copies]


def sentinel_first(laid: list[Raw]) -> list[Raw]:
    """Let the end sentinel overtake the last message of its partition."""
    last = next(r.offset for r in laid if first_end(r))
    place = {last: last - 1, last - 1: last}
    return [
        r._replace(offset=place.get(r.offset, r.offset))
        if r.topic.endswith("orders") and r.partition == 0
        else r
        for r in laid
    ]


def replaying(laid: list[Raw]) -> list[Raw]:
    topic = laid[0].topic
    old = partition_of(TopicPartition(topic, 0), "earlier", EARLIER_MS)
    return [*laid, *(r._replace(offset=r.offset + 50) for r in old)]


def another_run(laid: list[Raw]) -> list[Raw]:
    """Add records of another run, whose name begins with this run's name."""
    topic = laid[0].topic
    theirs = partition_of(TopicPartition(topic, 0), "run1", NOW_MS + 1)
    return [*laid, *(r._replace(offset=r.offset + 50) for r in theirs)]


Found = dict[FindingType, tuple[int, set[str]]]
"""Findings by type: their number, and the difference."""

ALL = len(TOPICS) * (SENT + PARTITIONS)
CASES: dict[str, tuple[Mutation, Found]] = {
    "perfect": (lambda laid: laid, {}),
    "topics-exchanged": (
        changing(lambda _: True, lambda r: r._replace(topic=other(r.topic))),
        {FindingType.CORRUPTED: (ALL, {"topic"})},
    ),
    "message-without-a-header": (
        changing(third, lambda r: without(r, messages.HEADER_TOPIC)),
        {FindingType.CORRUPTED: (1, {"headers"})},
    ),
    "message-without-headers": (
        changing(third, lambda r: r._replace(headers=())),
        {FindingType.CORRUPTED: (1, {"headers"})},
    ),
    "message-with-a-byte-changed": (
        changing(third, lambda r: r._replace(value=(r.value or b"")[:-1] + b"!")),
        {FindingType.CORRUPTED: (1, {"value"})},
    ),
    "message-key": (
        changing(third, lambda r: r._replace(key=b"other")),
        {FindingType.CORRUPTED: (1, {"key"})},
    ),
    "message-timestamp": (
        changing(third, lambda r: r._replace(timestamp_ms=NOW_MS + 1)),
        {FindingType.CORRUPTED: (1, {"timestamp"})},
    ),
    "message-in-another-partition": (
        changing(third, lambda r: r._replace(partition=0, offset=-1)),
        {FindingType.CORRUPTED: (1, {"partition"})},
    ),
    "last-message-lost": (
        lambda laid: [r for r in laid if (r.partition, r.offset) != (1, SENT // 2 - 1)],
        {FindingType.MISSING: (len(TOPICS), {""})},
    ),
    # Its sentinels are also lost: see sentinel-lost.
    "partition-lost": (
        lambda laid: [r for r in laid if r.partition == 0],
        {FindingType.MISSING: (len(TOPICS) * SENT // 2, {""})},
    ),
    "producer-lost": (
        lambda laid: [r for r in laid if r.is_sentinel],
        {FindingType.MISSING: (len(TOPICS) * SENT, {""})},
    ),
    "manifest-cut": (lambda laid: laid, {FindingType.UNMANIFESTED: (len(TOPICS) * CUT, {""})}),
    "sentinel-value": (
        changing(first_end, lambda r: r._replace(value=b"")),
        {FindingType.CORRUPTED: (1, {"value"})},
    ),
    "sentinel-key": (
        changing(first_end, lambda r: r._replace(key=b"other")),
        {FindingType.CORRUPTED: (1, {"key"})},
    ),
    "sentinel-timestamp": (
        changing(first_end, lambda r: r._replace(timestamp_ms=1)),
        {FindingType.CORRUPTED: (1, {"timestamp"})},
    ),
    "sentinel-header": (
        changing(first_end, lambda r: without(r, messages.HEADER_SENTINEL)),
        {FindingType.CORRUPTED: (1, {"headers"})},
    ),
    "sentinel-tripled": (tripled, {FindingType.DUPLICATED: (2, {""})}),
    "sentinel-in-another-partition": (
        changing(first_end, lambda r: r._replace(partition=1, offset=50)),
        {FindingType.CORRUPTED: (1, {"partition"})},
    ),
    "sentinel-overtakes": (sentinel_first, {FindingType.REORDERED: (1, {""})}),
    # Its partition has no end; the verifier says so from the sentinels that it saw.
    "sentinel-lost": (lambda laid: [r for r in laid if not first_end(r)], {}),
    "earlier-run": (replaying, {FindingType.REPLAYED: (SENT // 2, {""})}),
    "another-run": (another_run, {}),
    # Without headers.
    "body-perfect": (lambda laid: laid, {}),
    "body-topics-exchanged": (
        changing(lambda _: True, lambda r: r._replace(topic=other(r.topic))),
        {FindingType.CORRUPTED: (ALL, {"topic"})},
    ),
    "body-with-a-byte-changed": (
        changing(third, lambda r: r._replace(value=(r.value or b"")[:-1] + b"!")),
        {FindingType.CORRUPTED: (1, {"value"})},
    ),
    "body-with-a-header": (
        changing(third, lambda r: r._replace(headers=(("added", b"by the mirror"),))),
        {FindingType.CORRUPTED: (1, {"headers"})},
    ),
    "body-sentinel-in-another-partition": (
        changing(first_end, lambda r: r._replace(partition=1, offset=50)),
        {FindingType.CORRUPTED: (1, {"partition"})},
    ),
    "body-lost": (
        lambda laid: [r for r in laid if not third(r)],
        {FindingType.MISSING: (1, {""})},
    ),
    "body-earlier-run": (replaying, {FindingType.REPLAYED: (SENT // 2, {""})}),
}


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> dict[str, Found]:
    names = {f"{case}.{topic}": f"{case}.{topic}" for case in CASES for topic in TOPICS}
    source = {
        case: [
            record
            for topic in TOPICS
            for number in range(PARTITIONS)
            for record in partition_of(TopicPartition(f"{case}.{topic}", number))
        ]
        for case in CASES
    }
    manifest = LoadManifest(
        run="run",
        topics=tuple(
            LoadedTopic(
                name=name,
                keys=PARTITIONS,
                start_offsets=(0,) * PARTITIONS,
                end_offsets=(SENT // PARTITIONS + 1,) * PARTITIONS,
                target_start_offsets=(),
            )
            for name in names
        ),
        streams=tuple(
            Stream(
                producer="run-0-0",
                topic=name,
                sent=SENT - (CUT if name.startswith("manifest-cut") else 0),
            )
            for name in names
        ),
        started_ms=NOW_MS,
        finished_ms=NOW_MS,
        acknowledged_per_second=(),
    )

    rows = checks.compare(
        comparison.sentinels_frame(spark, manifest),
        comparison.refused_frame(spark, manifest),
        recognised(spark, (r for laid in source.values() for r in laid), names, manifest),
        recognised(
            spark,
            (r for case, laid in source.items() for r in CASES[case][0](laid)),
            names,
            manifest,
        ),
        run="run",
        keys=dict.fromkeys(names, PARTITIONS),
        partitioning=Partitioning.PRESERVED,
    ).collect()
    found: dict[str, Found] = {case: {} for case in CASES}
    for row in rows:
        case = found[row.topic.partition(".")[0]]
        count, differs = case.get(FindingType(row.kind), (0, set()))
        case[FindingType(row.kind)] = count + row["count"], differs | {row.differs}
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_is_done_to_a_record_is_found_and_nothing_else(
    judged: dict[str, Found], case: str
) -> None:
    assert judged[case] == CASES[case][1]
