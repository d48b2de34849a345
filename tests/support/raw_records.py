"""Records as Spark's Kafka source reads them, made by hand: for the mirror test's checks."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import TopicPartition
from headrace.mirror_test import LoadManifest
from headrace_spark import comparison, messages, records

_SCHEMA = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, timestamp bigint"
)


class Raw(NamedTuple):
    """A record of a log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, Any], ...]
    timestamp_ms: int

    @property
    def is_sentinel(self) -> bool:
        in_header = any(name == messages.HEADER_SENTINEL for name, _ in self.headers)
        return in_header or b";sentinel-" in (self.value or b"")


def raw(at: TopicPartition, offset: int, message: messages.Message, sent_ms: int, key: int) -> Raw:
    """Return a message of a load as stored in its partition."""
    return Raw(*at, offset, b"%d" % key, message.value, tuple(message.headers), sent_ms)


def kafka_source(spark: SparkSession, laid: Iterable[Raw]) -> DataFrame:
    """Return these records as Spark's Kafka source gives them, in the order of their logs."""
    laid = sorted(laid, key=lambda record: record[:3])
    rows = [(*r[:5], [tuple(h) for h in r.headers], r.timestamp_ms) for r in laid]
    kafka = spark.createDataFrame(rows, _SCHEMA).coalesce(1)
    return kafka.withColumn("timestamp", F.timestamp_millis("timestamp"))


def recognised(
    spark: SparkSession, laid: Iterable[Raw], names: dict[str, str], manifest: LoadManifest
) -> DataFrame:
    """Return the columns of these records that the comparison reads.

    ``names`` has the form of ``records.Range.source_names``.
    """
    kafka = kafka_source(spark, laid)
    own = records.recognised(kafka, names, manifest.run, manifest.started_ms)
    return comparison.claimed(own, comparison.claims_frame(spark, manifest)).cache()
