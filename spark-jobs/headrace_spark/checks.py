"""Exact comparison of what was acknowledged, what the source holds and what the target holds.

Pure functions of DataFrames. ``acknowledged`` and ``refused`` have the columns of ``IDENTITY``;
``source`` and ``target`` those of ``records.read``, without sentinels. The result is findings:
``kind``, ``count`` (1, or how many copies are too many), ``topic`` (its name on the source),
``partition``, ``offset``, ``producer``, ``seq``, ``differs`` (of a corrupted record: in what).
Where all inputs are partitioned by ``IDENTITY``, only ``reordered`` shuffles anything.
"""

from functools import reduce
from itertools import chain

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.mirror_test import Kind

IDENTITY = ["topic", "producer", "seq"]
"""One message, however many copies there are of it."""

_FINDING = ["kind", "count", "topic", "partition", "offset", "producer", "seq", "differs"]

_CONTENT = {
    "key": "key",
    "value": "value_hash",
    "headers": "headers_hash",
    "timestamp": "timestamp_ms",
}


def compare(
    acknowledged: DataFrame,
    refused: DataFrame,
    source: DataFrame,
    target: DataFrame,
    *,
    keys: dict[str, int],
    preserved: bool,
) -> DataFrame:
    """All findings. ``keys``: number of keys by topic; ``preserved``: partitions must agree."""
    return (
        ledger(acknowledged, refused, source, target)
        .transform(wrong_entries)
        .unionByName(corrupted(source, target, preserved))
        .unionByName(reordered(target, keys))
    )


def ledger(
    acknowledged: DataFrame, refused: DataFrame, source: DataFrame, target: DataFrame
) -> DataFrame:
    """One row a message: whether it was ``acknowledged`` or ``refused``, how many copies are on the
    ``source`` and on the ``target``, and one place on each (of the first copy, and of the last)."""
    pages = {
        "acknowledged": acknowledged,
        "refused": refused,
        "source": source,
        "target": target,
    }

    def entries(page: str) -> DataFrame:
        has_place = page in ("source", "target")
        return pages[page].select(
            *IDENTITY,
            F.lit(page).alias("page"),
            (F.col("partition") if has_place else F.lit(None).cast("int")).alias("partition"),
            (F.col("offset") if has_place else F.lit(None).cast("bigint")).alias("offset"),
        )

    def on(page: str, column: str) -> Column:
        return F.when(F.col("page") == page, F.col(column))

    return (
        reduce(DataFrame.unionByName, map(entries, pages))
        .groupBy(*IDENTITY)
        .agg(
            *(F.count(on(page, "page")).alias(page) for page in pages),
            F.min(on("source", "partition")).alias("source_partition"),
            F.min(on("source", "offset")).alias("source_offset"),
            F.max(on("target", "partition")).alias("target_partition"),
            F.max(on("target", "offset")).alias("target_offset"),
        )
    )


def wrong_entries(ledger: DataFrame) -> DataFrame:
    """Findings of the messages that are where they should not be, or not where they should."""
    acknowledged, refused = F.col("acknowledged") > 0, F.col("refused") > 0
    on_source, on_target = F.col("source") > 0, F.col("target") > 0
    source_place = [F.col("source_partition"), F.col("source_offset")]
    target_place = [F.col("target_partition"), F.col("target_offset")]
    nowhere = [F.lit(None).cast("int"), F.lit(None).cast("bigint")]
    one = F.lit(1).cast("bigint")

    def finding(kind: Kind, rule: Column, count: Column, place: list[Column]) -> Column:
        return F.when(
            rule,
            F.struct(
                F.lit(str(kind)).alias("kind"),
                count.alias("count"),
                place[0].alias("partition"),
                place[1].alias("offset"),
            ),
        )

    found = F.array(
        finding(Kind.MISSING, acknowledged & on_source & ~on_target, one, source_place),
        finding(Kind.DUPLICATED, F.col("target") > 1, F.col("target") - 1, target_place),
        finding(Kind.ALIEN, on_target & ~(acknowledged | refused | on_source), one, target_place),
        # Of a producer that the manifest does not know, too.
        finding(Kind.UNACKNOWLEDGED, on_source & ~acknowledged, one, source_place),
        # The source's failure, whatever the target has.
        finding(Kind.SOURCE_LOST, acknowledged & ~on_source, one, nowhere),
    )
    return (
        ledger.withColumn("found", F.explode(F.array_compact(found)))
        .select(*IDENTITY, "found.*", F.lit("").alias("differs"))
        .select(_FINDING)
    )


def corrupted(source: DataFrame, target: DataFrame, preserved: bool) -> DataFrame:
    """Findings of the copies on the target that are not as on the source."""
    columns = _CONTENT | ({"partition": "partition"} if preserved else {})
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
        .withColumns({"kind": F.lit(str(Kind.CORRUPTED)), "count": F.lit(1).cast("bigint")})
        .select(_FINDING)
    )


def reordered(target: DataFrame, keys: dict[str, int]) -> DataFrame:
    """Findings of first arrivals behind a later message of the same topic, producer and key.

    Judged in each partition of the target by itself: between partitions there is no order. The key
    is taken from the sequence number, so that a corrupted one does not look like a wrong order.
    """
    firsts = target.groupBy(*IDENTITY, "partition").agg(F.min("offset").alias("offset"))
    keys_of = F.create_map(*(F.lit(x) for x in chain(*keys.items())))
    before = (
        Window.partitionBy("topic", "partition", "producer", F.col("seq") % keys_of[F.col("topic")])
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        firsts.withColumn("highest_before", F.max("seq").over(before))
        .where("seq < highest_before")
        .withColumns(
            {
                "kind": F.lit(str(Kind.REORDERED)),
                "count": F.lit(1).cast("bigint"),
                "differs": F.lit(""),
            }
        )
        .select(_FINDING)
    )


def contradictions(summaries: DataFrame, acknowledged: DataFrame, source: DataFrame) -> DataFrame:
    """Producers and partitions of the source whose records are not those acknowledged, by their
    number and the sum of their checksums: ``topic``, ``producer``, ``partition``."""
    sums = ["topic", "producer", "partition", "count", "checksum"]
    found = (
        source.join(acknowledged, IDENTITY, "left_semi")
        .groupBy("topic", "producer", "partition")
        .agg(F.count("*").alias("count"), F.sum("checksum").alias("checksum"))
    )
    return summaries.select(sums).exceptAll(found.select(sums)).select(sums[:3])
