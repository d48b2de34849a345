"""Records as a flow copies them, and records that it did not copy because the target refused them.

A flow's filter and header changes are applied to the source before both sides are compared. A
refused record is excused only if the flow stored its offset: with a skipped record, in its
progress, or in the headers of a dead letter with the same key and value.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import ClusterAccess, RecordHeader, TopicPartition, progress_topic
from headrace.kafka import Position, replaced
from headrace.mirror_test import FlowChanges, MirrorTestRun, skipped_ranges
from headrace_spark.audit.differences import HashedRecord, Origin
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.records import OffsetRange, raw

_HEADERS = "array<struct<key: string, value: binary>>"
_CONTEXT = "__connect.errors."
"""Prefix of Kafka Connect's headers of dead letters (``datapath.dead_letters``)."""


def copied(records: DataFrame, changes: FlowChanges) -> DataFrame:
    """Return the records that a flow copies, with the headers of their copies.

    ``records`` have the columns of Spark's Kafka source. ``RecordChanges`` of the room
    ``replication`` defines the result.
    """
    if not changes.of_records:
        return records
    own = F.coalesce("headers", F.array().cast(_HEADERS))
    if changes.record_filter is not None:
        wanted = changes.record_filter.headers
        if wanted.exclude:
            records = records.where(~_has_one_of(own, wanted.exclude))
        if wanted.include:
            records = records.where(_has_one_of(own, wanted.include))
    if changes.headers is not None:
        removed = changes.headers.remove
        if removed:
            own = F.filter(own, lambda header: ~header["key"].isin(*removed))
        if changes.headers.add:
            added = F.array(
                *(
                    F.struct(F.lit(one.name).alias("key"), _utf8(one.value).alias("value"))
                    for one in changes.headers.add
                )
            )
            own = F.concat(own, added.cast(_HEADERS))
        records = records.withColumn("headers", own)
    return records


def _has_one_of(headers: Column, record_headers: Iterable[RecordHeader]) -> Column:
    """Return whether at least one of the headers matches. A match is never null."""

    def matches(header: Column) -> Column:
        found = F.lit(False)
        for one in record_headers:
            is_named = header["key"] == F.lit(one.name)
            has_value = (
                F.lit(True) if one.value is None else header["value"].eqNullSafe(_utf8(one.value))
            )
            found |= is_named & has_value
        return found

    return F.exists(headers, matches)


def _utf8(text: str) -> Column:
    return F.lit(text.encode())


def without_copy(
    source: Iterable[HashedRecord], target: Iterable[HashedRecord]
) -> list[HashedRecord]:
    """Return the source records whose content occurs less often on the target."""
    there = Counter(record.identity for record in target)
    here: dict[object, list[HashedRecord]] = {}
    for record in source:
        here.setdefault(record.identity, []).append(record)
    return [
        record
        for identity, records in here.items()
        if len(records) > there[identity]
        for record in records
    ]


def refused(
    spark: SparkSession,
    run: MirrorTestRun,
    ids: Mapping[str, str],
    names: Mapping[str, str],
    records: Sequence[HashedRecord],
) -> Set[Origin]:
    """Return the positions of source records that the target refused, according to the flow.

    The flow stores refused records as dead letters, or as skipped offsets in its progress.

    Args:
        spark: Session to use.
        run: The run. If its flow neither skips records nor writes dead letters, the result is
            empty.
        ids: Ids of the source's topics.
        names: Topic names on the source, by the names on the target.
        records: Source records without a copy.
    """
    topics = run.changes.topics_of_refused(run.source.alias)
    if run.flow is None or not topics or not records:
        return frozenset()
    found: frozenset[Origin] = frozenset()
    dead_letters = run.changes.on_record_error.dead_letter_topic
    letters = _whole(spark, run.target, dead_letters) if dead_letters else None
    if letters is not None:
        found |= found_in(letters, run.flow, records)
    progress = _whole(spark, run.target, progress_topic(run.source.alias))
    if progress is not None:
        source_id = PatientAdmin(run.source).cluster_id()
        ranges = _skipped(progress, source_id, ids, names)
        found |= {
            record.origin
            for record in records
            if any(
                first <= record.offset <= last
                for first, last in ranges.get((record.topic, record.partition), ())
            )
        }
    return found


def _skipped(
    progress: DataFrame, source_id: str, ids: Mapping[str, str], names: Mapping[str, str]
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the ranges of offsets that flows skipped, by topic and partition of the source."""
    latest = progress.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    rows = latest.where(F.col("value").cast("string").contains('"skipped":[{')).collect()
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        stored = skipped_ranges(bytes(row["key"]), bytes(row["value"]))
        if stored is None:
            continue
        key, ranges = stored
        if key.source_cluster_id == source_id and names.get(key.target_topic) == key.topic:
            found[key.topic, key.partition] += (
                (one.first, one.last)
                for one in ranges
                if key.topic in ids and not replaced(one.source_topic_id, ids[key.topic])
            )
    return found


def _whole(spark: SparkSession, target: ClusterAccess, topic: str) -> DataFrame | None:
    """Read a topic of the target, or return None if it does not exist."""
    admin = PatientAdmin(target)
    count = admin.topics().get(topic, 0)
    if not count:
        return None
    partitions = [TopicPartition(topic, partition) for partition in range(count)]
    first, last = (
        tuple(admin.offsets(partitions, position)[at] for at in partitions)
        for position in (Position.EARLIEST, Position.LAST_STABLE)
    )
    return raw(spark, target, OffsetRange({topic: topic}, {topic: first}, {topic: last}))


def found_in(letters: DataFrame, flow: str, records: Collection[HashedRecord]) -> frozenset[Origin]:
    """Return the positions of the records that are among the dead letters of a flow."""
    rows = [(*record[:3], record.key, record.value) for record in records]
    wanted = letters.sparkSession.createDataFrame(
        rows, "topic string, partition int, offset bigint, key_hash bigint, value_hash bigint"
    )
    # A record may already have headers with these names, and the flow keeps them. The position in
    # the last one may then be another record's, but the content differs.
    positions = letters.where(_context("connector.name") == flow).select(
        _context("topic").alias("topic"),
        _context("partition").try_cast("int").alias("partition"),
        _context("offset").try_cast("bigint").alias("offset"),
        F.xxhash64("key", F.col("key").isNull()).alias("key_hash"),
        F.xxhash64("value", F.col("value").isNull()).alias("value_hash"),
    )
    found = positions.join(F.broadcast(wanted), wanted.columns, "left_semi")
    return frozenset(
        (row["topic"], row["partition"], row["offset"])
        for row in found.select("topic", "partition", "offset").distinct().collect()
    )


def _context(name: str) -> Column:
    """Return a header of a dead letter as text, or null."""
    named = F.filter("headers", lambda header: header["key"] == F.lit(_CONTEXT + name))
    return F.get(named, F.lit(0))["value"].cast("string")
