"""Exact comparison of what was acknowledged, what the source holds and what the target holds.

Pure functions of DataFrames. Each check returns the records that break its rule, as findings:
``kind``, ``topic`` (its name on the source), ``partition``, ``offset``, ``producer``, ``seq``,
``differs``. ``acknowledged`` and ``refused`` have the columns of ``IDENTITY``; ``source`` and
``target`` those of ``records.read``, without sentinels. Where all of them are partitioned by
``IDENTITY``, no check but ``reordered`` shuffles anything.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.report import Kind

IDENTITY = ["topic", "producer", "seq"]
"""One message, however many copies there are of it."""

_CONTENT = {
    "key": "key",
    "value": "value_hash",
    "headers": "headers_hash",
    "timestamp": "timestamp_ms",
}
_POSITION = {"partition": "partition"}


def compare(
    acknowledged: DataFrame,
    refused: DataFrame,
    source: DataFrame,
    target: DataFrame,
    keys: dict[str, int],
    preserved: bool,
) -> DataFrame:
    """All findings. ``keys`` is the number of keys by topic; ``preserved``: partitions must agree."""
    return reduce(
        DataFrame.unionByName,
        [
            missing(acknowledged, source, target),
            duplicated(target),
            reordered(target, keys),
            corrupted(source, target, preserved),
            alien(acknowledged, refused, source, target),
            unacknowledged(acknowledged, source),
            source_lost(acknowledged, source),
        ],
    )


def missing(acknowledged: DataFrame, source: DataFrame, target: DataFrame) -> DataFrame:
    """Acknowledged, on the source, and not on the target."""
    return (
        source.join(acknowledged, IDENTITY, "left_semi")
        .join(target, IDENTITY, "left_anti")
        .transform(_findings, Kind.MISSING)
    )


def duplicated(target: DataFrame) -> DataFrame:
    """Every copy on the target after the first."""
    copies = Window.partitionBy(*IDENTITY).orderBy("partition", "offset")
    return (
        target.withColumn("copy", F.row_number().over(copies))
        .where("copy > 1")
        .transform(_findings, Kind.DUPLICATED)
    )


def reordered(target: DataFrame, keys: dict[str, int]) -> DataFrame:
    """First arrivals behind a later message of the same topic, producer and key.

    Judged in each partition of the target by itself: between partitions there is no order. The key
    is taken from the sequence number, so that a corrupted one does not look like a wrong order.
    """
    firsts = target.groupBy(*IDENTITY, "partition").agg(F.min("offset").alias("offset"))
    number_of_keys = F.create_map(*(F.lit(x) for pair in keys.items() for x in pair))
    before = (
        Window.partitionBy(
            "topic", "partition", "producer", F.col("seq") % number_of_keys[F.col("topic")]
        )
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        firsts.withColumn("highest_before", F.max("seq").over(before))
        .where("seq < highest_before")
        .transform(_findings, Kind.REORDERED)
    )


def corrupted(source: DataFrame, target: DataFrame, preserved: bool) -> DataFrame:
    """Copies on the target that are not as on the source; ``differs`` says in what."""
    columns = _CONTENT | (_POSITION if preserved else {})
    original = source.select(*IDENTITY, *(F.col(c).alias(f"source_{c}") for c in columns.values()))
    differs = F.concat_ws(
        ", ",
        *(
            F.when(~F.col(c).eqNullSafe(F.col(f"source_{c}")), F.lit(name))
            for name, c in columns.items()
        ),
    )
    return (
        target.join(original, IDENTITY)
        .withColumn("differs", differs)
        .where("differs != ''")
        .transform(_findings, Kind.CORRUPTED, F.col("differs"))
    )


def alien(
    acknowledged: DataFrame, refused: DataFrame, source: DataFrame, target: DataFrame
) -> DataFrame:
    """On the target under this run's name, and nobody is known to have sent it."""
    return (
        target.join(acknowledged, IDENTITY, "left_anti")
        .join(refused, IDENTITY, "left_anti")
        .join(source, IDENTITY, "left_anti")
        .transform(_findings, Kind.ALIEN)
    )


def unacknowledged(acknowledged: DataFrame, source: DataFrame) -> DataFrame:
    """On the source without an acknowledgement, or of a producer that the manifest does not know."""
    return source.join(acknowledged, IDENTITY, "left_anti").transform(
        _findings, Kind.UNACKNOWLEDGED
    )


def source_lost(acknowledged: DataFrame, source: DataFrame) -> DataFrame:
    """Acknowledged, and not on the source: the source's failure, whatever the target has."""
    return (
        acknowledged.join(source, IDENTITY, "left_anti")
        .withColumns({"partition": F.lit(None), "offset": F.lit(None)})
        .transform(_findings, Kind.SOURCE_LOST)
    )


def contradictions(
    summaries: DataFrame, acknowledged: DataFrame, source: DataFrame
) -> DataFrame:
    """Producers and partitions of the source whose records are not those acknowledged, by their number
    and the sum of their checksums: ``topic``, ``producer``, ``partition``."""
    found = (
        source.join(acknowledged, IDENTITY, "left_semi")
        .groupBy("topic", "producer", "partition")
        .agg(F.count("*").alias("count"), F.sum("checksum").alias("checksum"))
    )
    sums = ["topic", "producer", "partition", "count", "checksum"]
    return summaries.select(sums).exceptAll(found.select(sums)).select(sums[:3])


def _findings(
    records: DataFrame, kind: Kind, differs: Column | None = None
) -> DataFrame:
    return records.select(
        F.lit(str(kind)).alias("kind"),
        "topic",
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("bigint").alias("offset"),
        "producer",
        "seq",
        (F.lit("") if differs is None else differs).alias("differs"),
    )
