"""Records of real topics as DataFrames with few columns. All Spark I/O of an audit is here.

Payloads are hashed when they are read. Keys, values and headers never leave Spark. In compacted
topics only the latest record of each key must be equal, because either side may lack older records
and old tombstones.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import ClusterAccess, TopicPartition
from headrace.mirror_test import FindingType, FlowChanges
from headrace_spark.audit.differences import (
    UNORDERED,
    AuditBlock,
    HashedRecord,
    Key,
    RecordDifference,
)
from headrace_spark.audit.flow_records import copied
from headrace_spark.blocks import PRIME
from headrace_spark.records import OffsetRange, raw

_ROW = (1 << 33) - 1
"""Bits of ``monotonically_increasing_id`` that count records. The other bits are the partition."""
_COLUMNS = (
    *("topic", "partition", "offset", "timestamp_ms"),
    *("key_hash", "value_hash", "headers_hash", "content"),
)
_KEY = ("topic", "lane", "key_hash")
_SCALE = {
    "oldest_ms": "bigint",
    "width_ms": "bigint",
    "blocks": "bigint",
    "is_stamped": "boolean",
}
"""Types of the fields of ``Scale``."""


@dataclass(frozen=True)
class Scale:
    """Time intervals that define the blocks of one topic."""

    oldest_ms: int
    width_ms: int
    blocks: int
    is_stamped: bool = False
    """True if the target has ``LogAppendTime``. Blocks are then defined by content."""


def scale_of(oldest_ms: int, newest_ms: int, blocks: int, *, is_stamped: bool) -> Scale:
    """Return the scale that divides a period into at most ``blocks`` intervals."""
    width_ms = max(1, -(-(newest_ms - oldest_ms + 1) // blocks))
    return Scale(oldest_ms, width_ms, blocks, is_stamped)


def read(
    spark: SparkSession,
    cluster: ClusterAccess,
    offset_range: OffsetRange,
    stamped: Collection[str],
    changes: FlowChanges,
) -> DataFrame:
    """Read the committed records of a range, with the columns of ``hashed``.

    If a flow changes records, return only those that it copies, with the headers that their copies
    should have.
    """
    records = copied(raw(spark, cluster, offset_range), changes)
    return hashed(records, offset_range.source_names, stamped)


def hashed(
    records: DataFrame, source_names: Mapping[str, str], stamped: Collection[str]
) -> DataFrame:
    """Reduce records of Spark's Kafka source to hashes of their content.

    The columns are:

    - ``topic``: the topic's name on the source
    - ``partition``, ``offset``
    - ``timestamp_ms``: 0 if the target has ``LogAppendTime``
    - ``key_hash``, ``value_hash``, ``headers_hash``
    - ``content``: a second hash of key, value and headers
    - ``is_tombstone``, ``size_bytes``
    - ``row``: number of records before this one in the partition. Spark reads a partition in one
      task, in the order of the log.
    """
    names = {name: {"source": source} for name, source in source_names.items()}
    # Spark's hashes skip nulls. The flags distinguish null from empty, and key from value. JSON
    # keeps the borders of headers, and is written only if there are headers.
    nulls = (F.col("key").isNull(), F.col("value").isNull())
    headers = F.when(F.size("headers") > 0, F.to_json("headers"))
    topic = F.col("source")
    return _with_fields(records, names, {"source": "string"}).select(
        topic.alias("topic"),
        "partition",
        "offset",
        F.when(topic.isin(*stamped), F.lit(0).cast("bigint"))
        .otherwise(F.unix_millis("timestamp"))
        .alias("timestamp_ms"),
        F.xxhash64("key", nulls[0]).alias("key_hash"),
        F.xxhash64("value", nulls[1]).alias("value_hash"),
        F.xxhash64(headers).alias("headers_hash"),
        F.xxhash64(F.lit(1), "key", nulls[0], "value", nulls[1], headers).alias("content"),
        nulls[1].alias("is_tombstone"),
        (F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0)))
        .cast("bigint")
        .alias("size_bytes"),
        F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW)).alias("row"),
    )


def since(records: DataFrame, since_ms: int, except_in: Collection[str]) -> DataFrame:
    """Return the records that are not older than ``since_ms``, and all records of some topics.

    ``records`` are the result of ``hashed``, and ``except_in`` are topics whose timestamps do not
    select the same records on both sides.
    """
    is_recent = F.col("timestamp_ms") >= since_ms
    return records.where(is_recent | F.col("topic").isin(*except_in))


def in_blocks(records: DataFrame, scales: Mapping[str, Scale], *, ordered: bool) -> DataFrame:
    """Add the columns ``lane`` and ``number`` of each record's block."""
    # Records that are older or newer than the scale are in the outer blocks.
    interval = F.floor((F.col("timestamp_ms") - F.col("oldest_ms")) / F.col("width_ms"))
    by_time = F.least(F.greatest(interval, F.lit(-1)), F.col("blocks"))
    number = F.when(F.col("is_stamped"), F.pmod("content", "blocks")).otherwise(by_time)
    lane = F.col("partition") if ordered else F.lit(UNORDERED)
    fields = {name: asdict(scale) for name, scale in scales.items()}
    return (
        _with_fields(records, fields, _SCALE)
        .withColumns({"lane": lane, "number": number.cast("bigint")})
        .drop(*_SCALE)
    )


def _with_fields(
    records: DataFrame, topics: Mapping[str, Mapping[str, object]], types: Mapping[str, str]
) -> DataFrame:
    """Add the fields of each record's topic. ``topics`` must contain all topics of the records."""
    if len(topics) == 1:
        (fields,) = topics.values()
        return records.withColumns({n: F.lit(fields[n]).cast(types[n]) for n in types})
    # A join finds a topic by its hash. A map is searched from its beginning for each record.
    # createDataFrame would start Python workers.
    rows = json.dumps([{"topic": topic, **fields} for topic, fields in topics.items()])
    struct = ", ".join(f"{name}: {kind}" for name, kind in {"topic": "string", **types}.items())
    table = F.inline(F.from_json(F.lit(rows), f"array<struct<{struct}>>"))
    return records.join(F.broadcast(records.sparkSession.range(0, 1, 1, 1).select(table)), "topic")


def summarised(records: DataFrame) -> list[AuditBlock]:
    """Return the sums of each block. ``records`` are the result of ``in_blocks``."""
    mixed = _mixed()
    weight = F.xxhash64("content", "timestamp_ms")
    weights = (weight.bitwiseAND(F.lit(PRIME)), F.shiftrightunsigned(weight, 33))
    row = F.col("row") % PRIME
    summaries = records.groupBy("topic", "lane", "number").agg(
        F.count("*").alias("count"),
        F.sum("size_bytes").alias("size_bytes"),
        F.bit_xor(mixed).alias("mixed"),
        F.sum(mixed.bitwiseAND(F.lit(PRIME))).alias("total"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min("timestamp_ms").alias("oldest_ms"),
        F.sum("row").alias("rows"),
        F.array(*map(F.sum, weights)).alias("weights"),
        F.array(*(F.sum(weight * row % PRIME) for weight in weights)).alias("weighted"),
    )
    return [AuditBlock(**row.asDict()) for row in summaries.collect()]


def sums_of_partitions(records: DataFrame) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return count, XOR and sum of each partition, as ``summarised`` does for each block."""
    mixed = _mixed()
    sums = (F.count("*"), F.bit_xor(mixed), F.sum(mixed.bitwiseAND(F.lit(PRIME))))
    found = records.groupBy("topic", "partition").agg(*sums)
    return {(topic, partition): tuple(rest) for topic, partition, *rest in found.collect()}


def _mixed() -> Column:
    return F.xxhash64("key_hash", "value_hash", "headers_hash", "timestamp_ms")


def of_blocks(records: DataFrame, keys: Collection[Key]) -> list[HashedRecord]:
    """Return the records of some blocks. ``records`` are the result of ``in_blocks``."""
    wanted = records.sparkSession.createDataFrame(
        sorted(keys), "topic string, lane int, number bigint"
    )
    found = records.join(F.broadcast(wanted), ["topic", "lane", "number"], "left_semi")
    return [HashedRecord(*row) for row in found.select(*_COLUMNS).collect()]


def with_content(records: DataFrame, contents: Collection[int]) -> dict[int, HashedRecord]:
    """Return, for each of the given hashes, the first record with this ``HashedRecord.content``."""
    wanted = records.sparkSession.createDataFrame(
        [(content,) for content in sorted(contents)], "content bigint"
    )
    first = F.min(F.struct(*_COLUMNS)).alias("first")
    found = records.join(F.broadcast(wanted), "content", "left_semi").groupBy("content").agg(first)
    return {row["content"]: HashedRecord(*row["first"]) for row in found.collect()}


def oldest_and_newest(records: DataFrame) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest timestamp of each topic, in ms."""
    found = records.groupBy("topic").agg(F.min("timestamp_ms"), F.max("timestamp_ms"))
    return {topic: (oldest, newest) for topic, oldest, newest in found.collect()}


class Latest(NamedTuple):
    """Latest records of one key that differ between source and target."""

    source: HashedRecord | None
    """Latest record before the frontier, or None."""
    source_is_tombstone: bool
    target: HashedRecord | None
    target_is_tombstone: bool
    is_rewritten: bool
    """True if the source has newer records of the key."""


def latest_differing(
    source: DataFrame, target: DataFrame, frontier: Mapping[TopicPartition, int], max_keys: int
) -> list[Latest]:
    """Return at most ``max_keys`` keys whose latest records differ.

    ``source`` and ``target`` are results of ``in_blocks``.
    """
    spark = source.sparkSession
    rows = [(at.topic, at.partition, offset) for at, offset in frontier.items()]
    ends = spark.createDataFrame(rows, "topic string, partition int, frontier bigint")
    is_new = F.col("offset") >= F.col("frontier")
    record = F.struct("offset", *(c for c in _COLUMNS if c != "offset"), "is_tombstone")
    same = F.xxhash64("content", "timestamp_ms")
    here = (
        source.join(F.broadcast(ends), ["topic", "partition"])
        .groupBy(*_KEY)
        .agg(
            F.max(F.when(~is_new, record)).alias("s"),
            F.count_if(is_new).alias("newer"),
            F.collect_set(F.when(is_new, same)).alias("after"),
        )
    )
    there = target.groupBy(*_KEY).agg(F.max(record).alias("t"))
    both = here.join(there, list(_KEY), "full_outer")
    agrees = (
        F.col("s.content").eqNullSafe(F.col("t.content"))
        & F.col("s.timestamp_ms").eqNullSafe(F.col("t.timestamp_ms"))
        & F.col("s").isNotNull()
        & F.col("t").isNotNull()
    )
    is_newer = F.array_contains("after", F.xxhash64("t.content", "t.timestamp_ms"))
    found = both.where(
        (F.col("s").isNotNull() | F.col("t").isNotNull())
        & ~F.coalesce(agrees, F.lit(False))
        & ~F.coalesce(is_newer, F.lit(False))
    )
    return [
        Latest(
            _record(row["s"]),
            bool(row["s"] and row["s"]["is_tombstone"]),
            _record(row["t"]),
            bool(row["t"] and row["t"]["is_tombstone"]),
            bool(row["newer"]),
        )
        for row in found.limit(max_keys).collect()
    ]


def judge_latest(latest: Latest, tombstones_end_ms: int) -> RecordDifference | None:
    """Return the difference of a key, or None if compaction explains it.

    Tombstones that are older than ``tombstones_end_ms`` may have been removed.
    """
    source, target = latest.source, latest.target

    def is_absent(record: HashedRecord | None, is_tombstone: bool) -> bool:
        return record is None or (is_tombstone and record.timestamp_ms < tombstones_end_ms)

    if source is None and target is not None:
        # A tombstone says that the key is absent, as it is on the source.
        return (
            None
            if latest.target_is_tombstone
            else RecordDifference(FindingType.ALIEN, None, target)
        )
    if target is None and source is not None:
        gone = is_absent(source, latest.source_is_tombstone)
        return None if gone else RecordDifference(FindingType.MISSING, source, None)
    assert source is not None
    assert target is not None
    names = {"timestamp": 3, "value": 5, "headers": 6}
    differs = ", ".join(what for what, i in names.items() if source[i] != target[i])
    return RecordDifference(FindingType.CORRUPTED, source, target, differs)


def _record(row: Mapping[str, int] | None) -> HashedRecord | None:
    return None if row is None else HashedRecord(*(row[name] for name in _COLUMNS))  # type: ignore[arg-type]
