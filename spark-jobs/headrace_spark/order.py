"""Whether the messages of a key arrive in the order in which they were sent."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.api import Partitioning
from headrace.mirror_test import Kind
from headrace_spark.findings import IDENTITY, findings, is_elsewhere, key_number

RANGE_OFFSETS = 500_000
"""Of which the order is judged at a time: what one task sorts, in a second."""

_BEFORE = (Window.unboundedPreceding, -1)
"""Of a window: all rows before the row itself."""


def reordered(
    target: DataFrame,
    refused: DataFrame,
    run: str,
    keys: dict[str, int],
    partitioning: Partitioning,
    *,
    range_offsets: int = RANGE_OFFSETS,
) -> DataFrame:
    """Findings of first arrivals behind a later message of the same topic, producer and key; where
    partitions are preserved, also behind the sentinel of their partition; by key, behind the one
    that has their key.

    Judged in each partition of the target by itself: between partitions there is no order. The key
    is taken from the sequence number, so that a corrupted one does not look like a wrong order.
    What was not acknowledged is not judged: it may have been written at any time.

    Sorted are ``range_offsets`` offsets of a partition at a time, however long it is: what a record
    is compared with of earlier ranges is their highest number. A later copy does not change that
    number, since the first is before it.
    """
    judged = target.where(~is_elsewhere()).join(refused, IDENTITY, "left_anti")
    sequence = ["topic", "partition", "producer", "number"]

    def placed(records: DataFrame) -> DataFrame:
        at = F.floor(F.col("offset") / range_offsets)
        return records.withColumns({"number": key_number(keys), "range": at})

    firsts = judged.groupBy(*IDENTITY, "partition").agg(F.min("offset").alias("offset"))
    highest = placed(judged).groupBy(*sequence, "range").agg(F.max("seq").alias("highest"))
    earlier = Window.partitionBy(*sequence).orderBy("range").rowsBetween(*_BEFORE)
    borders = highest.withColumn("highest_earlier", F.max("highest").over(earlier)).drop("highest")
    within = Window.partitionBy(*sequence, "range").orderBy("offset").rowsBetween(*_BEFORE)

    ends = judged.where(F.col("producer") == run).withColumn("number", key_number(keys))
    ended = ["topic", "partition"]
    match partitioning:
        case Partitioning.PRESERVED:
            ends = ends.where("seq = partition")
        case Partitioning.BY_KEY:
            ended.append("number")
        case Partitioning.ANY:  # where it lies, other messages may still come
            ends = ends.where("false")
    ends = ends.groupBy(*ended).agg(F.min("offset").alias("ended_at"))
    return (
        placed(firsts)
        .join(borders, [*sequence, "range"], "left")
        .withColumn("highest_before", F.greatest("highest_earlier", F.max("seq").over(within)))
        .join(F.broadcast(ends), ended, "left")
        .where(f"seq < highest_before or (offset > ended_at and producer != '{run}')")
        .withColumns({"found_in": F.col("topic"), "differs": F.lit("")})
        .transform(findings, Kind.REORDERED)
    )
