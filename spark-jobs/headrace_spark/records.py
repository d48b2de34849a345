"""Both clusters and the manifest as narrow DataFrames: the only Spark I/O.

Payloads are hashed where they are read, so what Spark shuffles and keeps is about a hundred bytes a
record, whatever the size of the messages.
"""

import json
from collections.abc import Iterator
from itertools import chain

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import ClusterAccess
from headrace.mirror_test import LoadManifest, Stream
from headrace_spark.messages import HEADER_ID, HEADER_SENTINEL, HEADER_SEQ
from headrace_spark.security import security_options

Offsets = dict[str, tuple[int, ...]]
"""An offset of each partition, by topic."""

_CONSUMER = {
    "kafka.isolation.level": "read_committed",
    # After every poll Spark asks for the offsets of the partition, on the connection where the next
    # fetch already waits for records: so polls must be few, and a fetch that waits, short
    # (Kafka's defaults, 500 records and 500 ms, cost half a second a partition).
    "kafka.max.poll.records": "5000",
    "kafka.fetch.max.wait.ms": "10",
}
_HEADERS = 4  # places to look at: ours are the first two, unless a mirror put its own before them
_BODY_BYTES = 64  # enough for id, number and time
_CHUNK = 1_000_000  # sequence numbers that one row stands for: 8 MB when a task unfolds it


def read(
    spark: SparkSession,
    cluster: ClusterAccess,
    *,
    source_names: dict[str, str],
    start: Offsets,
    end: Offsets,
    run: str,
) -> DataFrame:
    """The committed records of a run between two offsets of each partition.

    ``source_names`` has the topics to read, and what each is called on the source. Fails when a
    part of the range is gone. Columns: ``topic`` (its name on the source), ``producer``, ``seq``
    (null when neither headers nor body tell it); ``sentinel`` (the source partition that this
    record ends, else null); ``partition``, ``offset``; ``key``, ``value_hash``, ``headers_hash``,
    ``timestamp_ms``; ``checksum`` (CRC-32 of the value).
    """
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .options(**_CONSUMER, **security_options(cluster))
        .option("subscribe", ",".join(source_names))
        .option("startingOffsets", _as_json(start))
        .option("endingOffsets", _as_json(end))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
    )
    names = F.create_map(*(F.lit(name) for name in chain(*source_names.items())))
    read = records.select(
        names[F.col("topic")].alias("topic"),
        "partition",
        "offset",
        "key",
        F.xxhash64("value").alias("value_hash"),
        F.xxhash64("headers").alias("headers_hash"),
        F.unix_millis("timestamp").alias("timestamp_ms"),
        F.crc32("value").alias("checksum"),
        _header(HEADER_ID).alias("id"),
        _header(HEADER_SEQ).try_cast("bigint").alias("number"),
        _header(HEADER_SENTINEL).try_cast("int").alias("end"),
        F.substring("value", 1, _BODY_BYTES).alias("body"),
    )
    return read.transform(_recognised, run).where("producer is not null")


def _recognised(records: DataFrame, run: str) -> DataFrame:
    """With ``producer``, ``seq`` and ``sentinel`` for what headers and body say.

    The headers decide; the body is taken apart only where they do not.
    """
    known = F.col("id").startswith(run) & (F.col("number").isNotNull() | F.col("end").isNotNull())
    body = F.split(F.when(~F.coalesce(known, F.lit(False)), F.col("body").cast("string")), ";")
    end_in_body = F.regexp_extract(F.col("second"), f"^{HEADER_SENTINEL}-([0-9]+)$", 1)
    return (
        records.withColumns({"first": F.get(body, 0), "second": F.get(body, 1)})
        .withColumns(
            {
                "producer": F.when(F.col("id").startswith(run), F.col("id")).when(
                    F.col("first").startswith(run), F.col("first")
                ),
                "seq": F.coalesce("number", F.col("second").try_cast("bigint")),
                "sentinel": F.coalesce("end", end_in_body.try_cast("int")),
            }
        )
        .drop("id", "number", "end", "body", "first", "second")
    )


def acknowledged(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Every acknowledged message: ``topic``, ``producer``, ``seq``."""
    return _unfolded(spark, ((s, r) for s in manifest.streams for r in _between(s)))


def refused(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Every message that was sent and not acknowledged: ``topic``, ``producer``, ``seq``."""
    return _unfolded(spark, ((s, r) for s in manifest.streams for r in s.failed))


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


def _header(name: str) -> Column:
    """The value of the header of this name, as text; null when it is not among the first few.

    Not by a lambda over all of them: Spark interprets those, and the rest of the query with them.
    """
    places = [F.get("headers", F.lit(place)) for place in range(_HEADERS)]
    return F.coalesce(*(F.when(at["key"] == name, at["value"]) for at in places)).cast("string")


def _as_json(offsets: Offsets) -> str:
    """As Spark's Kafka source takes offsets."""
    return json.dumps(
        {topic: {str(p): at for p, at in enumerate(ats)} for topic, ats in offsets.items()}
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


def _unfolded(spark: SparkSession, ranges: Iterator[tuple[Stream, tuple[int, int]]]) -> DataFrame:
    chunks = [
        (stream.topic, stream.producer, at, min(at + _CHUNK - 1, last))
        for stream, (first, last) in ranges
        for at in range(first, last + 1, _CHUNK)
    ]
    schema = "topic string, producer string, first bigint, last bigint"
    return spark.createDataFrame(chunks, schema).select(
        "topic", "producer", F.explode(F.sequence("first", "last")).alias("seq")
    )
