"""Exact comparison of what was acknowledged, what the source holds and what the target holds.

Pure functions of DataFrames. ``acknowledged`` and ``refused`` have the columns of ``IDENTITY``;
``source`` and ``target`` those of ``records.recognised``, and ``claimed``. ``acknowledged`` may
leave out what the source has: there ``claimed`` says the same. End sentinels are records like all
others. The results are ``findings``.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.api import Partitioning
from headrace.mirror_test import Kind
from headrace_spark.findings import IDENTITY, findings, key_number
from headrace_spark.ledger import ledger, wrong_entries
from headrace_spark.order import reordered

_CONTENT = {
    "topic": "found_in",
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
    run: str,
    keys: dict[str, int],
    partitioning: Partitioning,
    same_offsets: bool = False,
) -> DataFrame:
    """All findings. ``keys``: number of keys by topic; ``partitioning`` and ``same_offsets``: the
    mirror's promise."""
    own_source, own_target = source.where("own"), target.where("own")
    found = (
        ledger(acknowledged, refused, own_source, own_target)
        .transform(wrong_entries, run)
        .unionByName(corrupted(own_source, own_target, keys, partitioning))
        .unionByName(reordered(own_target, refused, run, keys, partitioning))
        .unionByName(replayed(source, target))
    )
    return found.unionByName(moved(own_source, own_target)) if same_offsets else found


def corrupted(
    source: DataFrame, target: DataFrame, keys: dict[str, int], partitioning: Partitioning
) -> DataFrame:
    """Findings of the copies on the target that are not as on the source; by key, also of those
    that are not in the partition where most records of their key are."""
    columns = _CONTENT | ({} if partitioning is Partitioning.ANY else {"partition": "partition"})
    original = source.select(*IDENTITY, *(F.col(c).alias(f"source_{c}") for c in columns.values()))
    if partitioning is Partitioning.BY_KEY:
        homes = _homes(target, keys)
        original = (
            original.withColumn("number", key_number(keys))
            .join(F.broadcast(homes), ["topic", "number"], "left")
            .withColumn("source_partition", F.col("home"))
            .drop("number", "home")
        )
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
        .transform(findings, Kind.CORRUPTED)
    )


def moved(source: DataFrame, target: DataFrame) -> DataFrame:
    """Findings of the copies that are at another offset than on the source; in whatever topic and
    partition, since ``corrupted`` has those."""
    original = source.select(*IDENTITY, F.col("offset").alias("source_offset"))
    return (
        target.join(original, IDENTITY)
        .where("offset != source_offset")
        .withColumn("differs", F.lit("offset"))
        .transform(findings, Kind.UNEQUAL_OFFSETS)
    )


def replayed(source: DataFrame, target: DataFrame) -> DataFrame:
    """Findings of the records of earlier runs that came to the target while this one ran, and did
    not come to the source."""
    return (
        target.where("not own")
        .join(source.where("not own"), IDENTITY, "left_anti")
        .withColumn("differs", F.lit(""))
        .transform(findings, Kind.REPLAYED)
    )


def contradictions(summaries: DataFrame, source: DataFrame) -> DataFrame:
    """Producers and partitions of the source whose records are not those acknowledged, by their
    number and the sum of their checksums: ``topic``, ``producer``, ``partition``. ``source``: of
    what was acknowledged, what is there."""
    sums = ["topic", "producer", "partition", "count", "checksum"]
    found = source.groupBy("topic", "producer", "partition").agg(
        F.count("*").alias("count"), F.sum("checksum").alias("checksum")
    )
    return summaries.select(sums).exceptAll(found.select(sums)).select(sums[:3])


def _homes(target: DataFrame, keys: dict[str, int]) -> DataFrame:
    """Where most records of each key are, of two such partitions in the smaller: ``topic``,
    ``number`` (of the key), ``home``."""
    counted = F.struct("count", -F.col("partition"))
    return (
        target.groupBy("topic", key_number(keys).alias("number"), "partition")
        .count()
        .groupBy("topic", "number")
        .agg(F.max_by("partition", counted).alias("home"))
    )
