"""The audit's reading with Spark: which records are equal, and the latest record of a key."""

from collections.abc import Iterable, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.raw_records import Raw, kafka_source

from headrace.api import TopicPartition
from headrace.mirror_test import FindingType
from headrace_spark.audit import records
from headrace_spark.audit.differences import compare_blocks
from headrace_spark.audit.records import Scale, scale_of

ORDERS = "orders"
PLAIN = Raw(ORDERS, 0, 0, b"k", b"v", (("a", b"1"),), 1_000)
SCALES = {ORDERS: Scale(oldest_ms=0, width_ms=1_000, blocks=10)}


def frame(spark: SparkSession, log: Iterable[Raw]) -> DataFrame:
    hashed = records.hashed(kafka_source(spark, log), {ORDERS: ORDERS}, ())
    return records.in_blocks(hashed, SCALES, ordered=True)


DIFFERENT = [
    PLAIN,
    PLAIN._replace(key=None),
    PLAIN._replace(key=b""),
    PLAIN._replace(value=None),
    PLAIN._replace(value=b""),
    PLAIN._replace(key=None, value=b"k"),
    PLAIN._replace(key=b"kv", value=b""),
    PLAIN._replace(headers=()),
    PLAIN._replace(headers=(("a", None),)),
    PLAIN._replace(headers=(("a", b""),)),
    PLAIN._replace(headers=(("a", b"1"), ("a", None))),
    PLAIN._replace(headers=(("a", None), ("a", b"1"))),
    PLAIN._replace(headers=(("a", None), ("1", None))),
    PLAIN._replace(headers=(("1", b"a"),)),
    PLAIN._replace(headers=(("a", b"\x00"),)),
    PLAIN._replace(timestamp_ms=1_001),
]


def test_records_that_differ_in_anything_have_different_hashes(spark: SparkSession) -> None:
    log = [one._replace(offset=offset) for offset, one in enumerate(DIFFERENT)]
    found = records.of_blocks(frame(spark, log), [(ORDERS, 0, 1)])
    assert len({one.identity for one in found}) == len(DIFFERENT)
    contents = {one.content for one in found}
    assert len(contents) == len(DIFFERENT) - 1, "all but the timestamp has its own second hash"


def test_sums_of_both_sides_agree_though_offsets_differ(spark: SparkSession) -> None:
    log = [PLAIN._replace(offset=n, value=b"%d" % n, timestamp_ms=n * 100) for n in range(40)]
    copy = [one._replace(offset=3 * one.offset + 50) for one in log]
    swapped = [*copy]
    swapped[12], swapped[13] = (
        copy[12]._replace(offset=copy[13].offset),
        copy[13]._replace(offset=copy[12].offset),
    )
    source = records.summarised(frame(spark, log))
    for target, differing in ((copy, set()), (swapped, {(ORDERS, 0, 1)})):
        found = compare_blocks(source, records.summarised(frame(spark, target)), 1_000)
        assert found.differing == differing
        assert len(found.agreed[ORDERS, 0]) == 4 - len(differing)


@pytest.mark.parametrize("topics", [(ORDERS,), (ORDERS, "returns")])
def test_each_topic_has_its_name_on_the_source_and_its_own_blocks(
    spark: SparkSession, topics: Sequence[str]
) -> None:
    log = [PLAIN._replace(topic=f"east.{topic}", timestamp_ms=7_000) for topic in topics]
    names = {f"east.{topic}": topic for topic in topics}
    scales = {topic: Scale(1_000 * n, 1_000, 10) for n, topic in enumerate(topics)}
    hashed = records.hashed(kafka_source(spark, log), names, ())
    found = records.summarised(records.in_blocks(hashed, scales, ordered=True))
    assert {block.key for block in found} == {(topic, 0, 7 - n) for n, topic in enumerate(topics)}


def test_blocks_beyond_the_limit_are_not_read(spark: SparkSession) -> None:
    log = [PLAIN._replace(offset=n, timestamp_ms=n * 100) for n in range(40)]
    found = compare_blocks(records.summarised(frame(spark, log)), [], 25)
    assert (len(found.differing), len(found.unread)) == (2, 2)


@pytest.mark.parametrize(("newest", "blocks"), [(0, 1), (9, 3), (10**12, 100_000), (5, 100)])
def test_a_scale_has_no_more_blocks_than_asked_for(newest: int, blocks: int) -> None:
    scale = scale_of(0, newest, blocks, is_stamped=False)
    assert newest // scale.width_ms < blocks


def found_latest(
    spark: SparkSession, source: list[Raw], target: list[Raw], frontier: int = 100
) -> list[tuple[FindingType, str]]:
    ours, theirs = (
        frame(spark, [one._replace(offset=offset) for offset, one in enumerate(log)])
        for log in (source, target)
    )
    ends = {TopicPartition(ORDERS, 0): frontier}
    judged = [
        records.judge_latest(one, tombstones_end_ms=5_000)
        for one in records.latest_differing(ours, theirs, ends, 1_000)
        if not one.is_rewritten
    ]
    return [(one.kind, one.differs) for one in judged if one]


def version(value: bytes | None, timestamp_ms: int = 9_000, key: bytes = b"k") -> Raw:
    return Raw(ORDERS, 0, 0, key, value, (), timestamp_ms)


ONE, TWO = version(b"1"), version(b"2")
OTHER = version(b"x", key=b"other")
NEW_TOMBSTONE, OLD_TOMBSTONE = version(None), version(None, 4_000)


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ([ONE, TWO], [TWO], []),
        ([TWO], [ONE, TWO], []),
        ([TWO], [TWO, TWO], []),
        ([ONE, TWO], [ONE], [(FindingType.CORRUPTED, "value")]),
        ([ONE, OTHER], [OTHER], [(FindingType.MISSING, "")]),
        ([OTHER], [ONE, OTHER], [(FindingType.ALIEN, "")]),
        ([ONE, NEW_TOMBSTONE, OTHER], [OTHER], [(FindingType.MISSING, "")]),
        ([ONE, OLD_TOMBSTONE, OTHER], [OTHER], []),
        ([ONE, OLD_TOMBSTONE], [ONE], [(FindingType.CORRUPTED, "timestamp, value")]),
        ([OTHER], [OLD_TOMBSTONE, OTHER], []),
    ],
)
def test_the_latest_record_of_each_key_has_to_agree(
    spark: SparkSession, source: list[Raw], target: list[Raw], found: list[tuple[FindingType, str]]
) -> None:
    assert found_latest(spark, source, target) == found


def test_records_after_the_frontier_may_be_on_the_target(spark: SparkSession) -> None:
    for target in ([ONE], [ONE, TWO]):
        assert found_latest(spark, [ONE, TWO], target, frontier=1) == []
