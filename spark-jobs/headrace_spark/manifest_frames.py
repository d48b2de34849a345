"""The manifest as narrow DataFrames, and what it claims of the clusters' records."""

from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.mirror_test import LoadManifest, Stream

_CHUNK = 1_000_000  # sequence numbers that one row stands for: 8 MB when a task unfolds it


def claims(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """How many numbers each producer used, from 0: ``topic``, ``producer``, ``sent``; sentinels as
    those of a producer named as the run."""
    streams = [(s.topic, s.producer, s.sent) for s in manifest.streams]
    sentinels = [(t.name, manifest.run, t.partitions) for t in manifest.topics]
    return spark.createDataFrame(
        [*streams, *sentinels], "topic string, producer string, sent bigint"
    )


def claimed(records: DataFrame, claims: DataFrame) -> DataFrame:
    """With ``claimed``: whether the manifest has a record's number, acknowledged or not."""
    return (
        records.join(F.broadcast(claims), ["topic", "producer"], "left")
        .withColumn("claimed", F.coalesce(F.col("seq").between(0, F.col("sent") - 1), F.lit(False)))
        .drop("sent")
    )


def acknowledged(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Every acknowledged message: ``topic``, ``producer``, ``seq``."""
    return _unfolded(
        spark, ((s.topic, s.producer, r) for s in manifest.streams for r in _between(s))
    )


def sentinels(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Every end sentinel: ``topic``, ``producer`` (the run), ``seq`` (the partition)."""
    ends = ((t.name, manifest.run, (0, t.partitions - 1)) for t in manifest.topics)
    return _unfolded(spark, ends)


def refused(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Every message that was sent and not acknowledged: ``topic``, ``producer``, ``seq``."""
    return _unfolded(spark, ((s.topic, s.producer, r) for s in manifest.streams for r in s.failed))


def summaries(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """The manifest's sums: ``topic``, ``producer``, ``partition``, ``count``, ``checksum``."""
    return spark.createDataFrame(
        [
            (stream.topic, stream.producer, p.partition, p.count, p.checksum)
            for stream in manifest.streams
            for p in stream.partitions
        ],
        "topic string, producer string, partition int, count bigint, checksum bigint",
    )


def _between(stream: Stream) -> Iterator[tuple[int, int]]:
    """The ranges of a stream that did not fail."""
    first = 0
    for failed_first, failed_last in stream.failed:
        if first < failed_first:
            yield first, failed_first - 1
        first = failed_last + 1
    if first < stream.sent:
        yield first, stream.sent - 1


def _unfolded(spark: SparkSession, ranges: Iterable[tuple[str, str, tuple[int, int]]]) -> DataFrame:
    chunks = [
        (topic, producer, at, min(at + _CHUNK - 1, last))
        for topic, producer, (first, last) in ranges
        for at in range(first, last + 1, _CHUNK)
    ]
    schema = "topic string, producer string, first bigint, last bigint"
    return spark.createDataFrame(chunks, schema).select(
        "topic", "producer", F.explode(F.sequence("first", "last")).alias("seq")
    )
