"""Each message, and on which side how many copies of it are: what is missing, doubled or alien."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.mirror_test import Kind
from headrace_spark.findings import COLUMNS, IDENTITY, PLACE, is_elsewhere

_CLUSTERS = ("source", "target")


def ledger(
    acknowledged: DataFrame, refused: DataFrame, source: DataFrame, target: DataFrame
) -> DataFrame:
    """One row a message: whether it was ``acknowledged`` or ``refused``, how many copies are on the
    ``source`` and on the ``target``, and where: the first copy on the source; on the target the
    first and the last, each a copy that is there (those in another topic come last)."""
    pages = {
        "acknowledged": acknowledged,
        "refused": refused,
        "source": source,
        "target": target,
    }

    def entries(page: str) -> DataFrame:
        nowhere = F.struct(
            F.lit(None).cast("boolean").alias("elsewhere"),
            F.lit(None).cast("int").alias("partition"),
            F.lit(None).cast("bigint").alias("offset"),
            F.lit(None).cast("string").alias("found_in"),
        )
        place = F.struct(is_elsewhere().alias("elsewhere"), "partition", "offset", "found_in")
        return pages[page].select(
            *IDENTITY,
            F.lit(page).alias("page"),
            (F.col("claimed") if page in _CLUSTERS else F.lit(False)).alias("claimed"),
            (place if page in _CLUSTERS else nowhere).alias("place"),
        )

    def on(page: str, column: str) -> Column:
        return F.when(F.col("page") == page, F.col(column))

    return (
        reduce(DataFrame.unionByName, map(entries, pages))
        .groupBy(*IDENTITY)
        .agg(
            *(F.count(on(page, "page")).alias(page) for page in pages),
            F.max("claimed").alias("claimed"),
            F.min(on("source", "place")).alias("source_place"),
            F.min(on("target", "place")).alias("first_place"),
            F.max(on("target", "place")).alias("last_place"),
        )
    )


def wrong_entries(ledger: DataFrame, run: str) -> DataFrame:
    """Findings of the messages that are where they should not be, or not where they should.

    A sentinel that is missing is no message: ``verifier`` reports it as a partition without end.
    """
    refused = F.col("refused") > 0
    acknowledged = (F.col("acknowledged") > 0) | (F.col("claimed") & ~refused)
    on_source, on_target = F.col("source") > 0, F.col("target") > 0
    is_message = F.col("producer") != run
    source_place, first, last = (F.col(f"{which}_place") for which in ("source", "first", "last"))
    # A copy that is certainly not the one that belongs there.
    is_home = ~last["elsewhere"] & (last["partition"] == source_place["partition"])
    extra = F.when(is_home & (first["partition"] != last["partition"]), first).otherwise(last)
    one = F.lit(1).cast("bigint")

    def finding(kind: Kind, rule: Column, count: Column, place: Column) -> Column:
        return F.when(
            rule,
            F.struct(
                F.lit(str(kind)).alias("kind"),
                count.alias("count"),
                *(place[name].alias(name) for name in PLACE),
            ),
        )

    missing = acknowledged & on_source & ~on_target & is_message
    found = F.array(
        finding(Kind.MISSING, missing, one, source_place),
        finding(Kind.DUPLICATED, F.col("target") > 1, F.col("target") - 1, extra),
        finding(Kind.ALIEN, on_target & ~(acknowledged | refused | on_source), one, last),
        finding(Kind.UNACKNOWLEDGED, on_source & refused, one, source_place),
        # Of a producer that the manifest does not know, too.
        finding(Kind.UNMANIFESTED, on_source & ~(acknowledged | refused), one, source_place),
        # The source's failure, whatever the target has; it has no place there.
        finding(Kind.SOURCE_LOST, acknowledged & ~on_source, one, source_place),
    )
    return (
        ledger.withColumn("found", F.explode(F.array_compact(found)))
        .select(*IDENTITY, "found.*", F.lit("").alias("differs"))
        .select(COLUMNS)
    )
