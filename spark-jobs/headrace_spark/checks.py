"""Comparison of acknowledged records with the records on the source and on the target.

The functions are pure functions of DataFrames. ``acknowledged`` and ``refused`` have the columns of
``IDENTITY``. ``source`` and ``target`` have the columns of ``records.recognised``, and ``claimed``.
``acknowledged`` may omit records that exist on the source, because ``claimed`` marks them there.
End sentinels are checked like other records. Most functions return ``findings``.
"""

from functools import reduce
from itertools import chain

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.api import Partitioning
from headrace.mirror_test import FindingType

# Columns of a finding:
#
# ``kind``: the type. ``count``: 1, or the number of surplus copies. ``found_in`` (the topic's name
# on the source), ``partition`` and ``offset``: the position. ``topic`` (to which it was sent),
# ``producer`` and ``seq``: the identity. ``differs``: the differing fields of a corrupted record,
# or ``offset`` for a record at another offset.

IDENTITY = ["topic", "producer", "seq"]
"""Columns that identify a message. All copies of the message have the same values."""

PLACE = ["found_in", "partition", "offset"]
"""Columns that identify one copy of a message."""

COLUMNS = ["kind", "count", *PLACE, *IDENTITY, "differs"]
"""Columns of a finding."""


def findings(records: DataFrame, kind: FindingType) -> DataFrame:
    """Return a finding of the given type for each record."""
    return records.withColumns({"kind": F.lit(str(kind)), "count": F.lit(1).cast("bigint")}).select(
        COLUMNS
    )


def is_elsewhere() -> Column:
    """Return a column that is true if a record was found in another topic than its own."""
    return F.col("found_in") != F.col("topic")


def key_number(keys: dict[str, int]) -> Column:
    """Return a column with the key number of a message or sentinel, from its sequence number."""
    keys_of = F.create_map(*(F.lit(x) for x in chain(*keys.items())))
    return F.col("seq") % keys_of[F.col("topic")]


_CLUSTERS = ("source", "target")


def ledger(
    acknowledged: DataFrame, refused: DataFrame, source: DataFrame, target: DataFrame
) -> DataFrame:
    """Return one row for each message.

    The row contains the number of entries of the message in each DataFrame (``acknowledged``,
    ``refused``, ``source``, ``target``). It also contains the position of the first copy on the
    source, and of the first and last copies on the target. Copies in another topic sort last.
    """
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
    """Return findings of missing, duplicated and unexpected messages.

    A missing sentinel is not reported here. ``ClusterComparison.open_sentinels`` contains its
    partition.
    """
    refused = F.col("refused") > 0
    acknowledged = (F.col("acknowledged") > 0) | (F.col("claimed") & ~refused)
    on_source, on_target = F.col("source") > 0, F.col("target") > 0
    is_message = F.col("producer") != run
    source_place, first, last = (F.col(f"{which}_place") for which in ("source", "first", "last"))
    # The position of a surplus copy, not of the copy in the right partition.
    is_home = ~last["elsewhere"] & (last["partition"] == source_place["partition"])
    extra = F.when(is_home & (first["partition"] != last["partition"]), first).otherwise(last)
    one = F.lit(1).cast("bigint")

    def finding(kind: FindingType, rule: Column, count: Column, place: Column) -> Column:
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
        finding(FindingType.MISSING, missing, one, source_place),
        finding(FindingType.DUPLICATED, F.col("target") > 1, F.col("target") - 1, extra),
        finding(FindingType.ALIEN, on_target & ~(acknowledged | refused | on_source), one, last),
        finding(FindingType.UNACKNOWLEDGED, on_source & refused, one, source_place),
        # This includes messages of a producer that is not in the manifest.
        finding(FindingType.UNMANIFESTED, on_source & ~(acknowledged | refused), one, source_place),
        # The source lost the message, so it has no position, and the target does not matter.
        finding(FindingType.SOURCE_LOST, acknowledged & ~on_source, one, source_place),
    )
    return (
        ledger.withColumn("found", F.explode(F.array_compact(found)))
        .select(*IDENTITY, "found.*", F.lit("").alias("differs"))
        .select(COLUMNS)
    )


RANGE_OFFSETS = 500_000
"""Number of offsets whose order is checked in one task. Sorting them takes about 1 s."""

_BEFORE = (Window.unboundedPreceding, -1)
"""Window frame with all rows before the current row."""


def reordered(
    target: DataFrame,
    refused: DataFrame,
    run: str,
    keys: dict[str, int],
    partitioning: Partitioning,
    *,
    range_offsets: int = RANGE_OFFSETS,
) -> DataFrame:
    """Return the messages whose first copy comes after a message that was sent later.

    Messages are compared if they have the same topic, producer and key. If partitions are
    preserved, a first copy after the sentinel of its partition is also a finding. With partitioning
    by key, a first copy after the sentinel that has the same key is also a finding.

    Each partition of the target is checked separately, because there is no order between
    partitions. The key is derived from the sequence number, so a corrupted key is not reported as a
    wrong order. Unacknowledged messages are not checked, because they may have been written at any
    time.

    Each task sorts ``range_offsets`` offsets of a partition, so a long partition needs no more
    memory. A record is compared with the highest sequence number of earlier ranges. A duplicate
    does not change that number, because its first copy precedes it.
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
        case Partitioning.ANY:  # other messages may still follow the sentinel
            ends = ends.where("false")
    ends = ends.groupBy(*ended).agg(F.min("offset").alias("ended_at"))
    return (
        placed(firsts)
        .join(borders, [*sequence, "range"], "left")
        .withColumn("highest_before", F.greatest("highest_earlier", F.max("seq").over(within)))
        .join(F.broadcast(ends), ended, "left")
        .where(f"seq < highest_before or (offset > ended_at and producer != '{run}')")
        .withColumns({"found_in": F.col("topic"), "differs": F.lit("")})
        .transform(findings, FindingType.REORDERED)
    )


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
    """Return all findings.

    ``keys`` is the number of keys of each topic. ``partitioning`` and ``same_offsets`` are the
    guarantees of the mirror.
    """
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
    """Return findings of copies on the target that differ from their original on the source.

    With partitioning by key, a copy also differs if it is not in the partition that contains most
    records of its key.
    """
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
        .transform(findings, FindingType.CORRUPTED)
    )


def moved(source: DataFrame, target: DataFrame) -> DataFrame:
    """Return findings of copies whose offset differs from the offset on the source.

    A wrong topic or partition is reported by ``corrupted``.
    """
    original = source.select(*IDENTITY, F.col("offset").alias("source_offset"))
    return (
        target.join(original, IDENTITY)
        .where("offset != source_offset")
        .withColumn("differs", F.lit("offset"))
        .transform(findings, FindingType.UNEQUAL_OFFSETS)
    )


def replayed(source: DataFrame, target: DataFrame) -> DataFrame:
    """Return findings of records of earlier runs that exist only on the target."""
    return (
        target.where("not own")
        .join(source.where("not own"), IDENTITY, "left_anti")
        .withColumn("differs", F.lit(""))
        .transform(findings, FindingType.REPLAYED)
    )


def contradictions(summaries: DataFrame, source: DataFrame) -> DataFrame:
    """Return producers and source partitions whose records differ from the acknowledged ones.

    The number of records and the sum of checksums are compared. The result has the columns
    ``topic``, ``producer`` and ``partition``. ``source`` contains the acknowledged records that
    exist on the source.
    """
    sums = ["topic", "producer", "partition", "count", "checksum"]
    found = source.groupBy("topic", "producer", "partition").agg(
        F.count("*").alias("count"), F.sum("checksum").alias("checksum")
    )
    return summaries.select(sums).exceptAll(found.select(sums)).select(sums[:3])


def _homes(target: DataFrame, keys: dict[str, int]) -> DataFrame:
    """Return the partition that contains most records of each key.

    If several partitions contain equally many, the lowest one is returned. The columns are
    ``topic``, ``number`` (of the key) and ``home``.
    """
    counted = F.struct("count", -F.col("partition"))
    return (
        target.groupBy("topic", key_number(keys).alias("number"), "partition")
        .count()
        .groupBy("topic", "number")
        .agg(F.max_by("partition", counted).alias("home"))
    )
