"""Examples of each type of finding, with the details of the records.

There may be as many findings as records, so a finding has few columns. Only the records of examples
are looked up again on both sides.
"""

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from headrace.api import Partitioning
from headrace.mirror_test import (
    MAX_EXAMPLES,
    Example,
    FieldDifference,
    FindingShare,
    FindingType,
    MirrorTestRun,
    Place,
)
from headrace_spark.checks import IDENTITY, PLACE

_ON_SOURCE = {
    FindingType.MISSING,
    FindingType.UNACKNOWLEDGED,
    FindingType.UNMANIFESTED,
    FindingType.SOURCE_LOST,
}
_COPIES = 1_000
"""Maximum number of copied records that are looked up for all examples together."""
_LETTERS = 80
"""Maximum number of bytes of a key that are shown."""


def pick(
    findings: DataFrame, source: DataFrame, target: DataFrame, run: MirrorTestRun
) -> dict[FindingType, tuple[Example, ...]]:
    """Return up to ``MAX_EXAMPLES`` of each type, ordered by position."""
    order = ("topic", "found_in", "partition", "offset", "producer", "seq")
    first = Window.partitionBy("kind").orderBy(*order)
    rows = (
        findings.withColumn("rank", F.row_number().over(first))
        .where(F.col("rank") <= MAX_EXAMPLES)
        .orderBy("kind", "rank")
        .collect()
    )
    originals = {_identity(row): row for row in _copies(source, rows)}
    copies = {_place(row): row for row in _copies(target, rows)}
    found: dict[FindingType, tuple[Example, ...]] = {}
    for row in rows:
        kind = FindingType(row["kind"])
        original = originals.get(_identity(row))
        copy = None if kind in _ON_SOURCE else copies.get(_place(row))
        found[kind] = (*found.get(kind, ()), _example(kind, row, original, copy, run))
    return found


def shares(findings: DataFrame, run: MirrorTestRun) -> list[FindingShare]:
    """Return the number of findings by type, topic, partition and differing fields.

    The number of rows is limited by the number of partitions times the kinds of differences.
    """
    rows = (
        findings.withColumn("found_in", F.coalesce("found_in", "topic"))
        .groupBy("kind", "found_in", "partition", "differs")
        .agg(F.sum("count").alias("total"))
        .collect()
    )
    return [
        FindingShare(
            kind=(kind := FindingType(row["kind"])),
            topic=row["found_in"] if kind in _ON_SOURCE else run.topics[row["found_in"]],
            partition=row["partition"],
            differs=row["differs"],
            count=row["total"],
        )
        for row in rows
    ]


def _copies(records: DataFrame, rows: list[Row]) -> list[Row]:
    """Return all copies of the messages in ``rows``."""
    spark: SparkSession = records.sparkSession
    wanted = spark.createDataFrame(
        sorted({_identity(row) for row in rows if row["seq"] is not None}),
        "topic string, producer string, seq bigint",
    )
    return records.join(F.broadcast(wanted), IDENTITY).limit(_COPIES).collect()


def _example(
    kind: FindingType, row: Row, original: Row | None, copy: Row | None, run: MirrorTestRun
) -> Example:
    found_in = row["found_in"] or row["topic"]
    return Example(
        topic=found_in if kind in _ON_SOURCE else run.topics[found_in],
        partition=row["partition"],
        offset=row["offset"],
        producer=row["producer"],
        seq=row["seq"],
        differs=row["differs"],
        source=original
        and Place(
            topic=original["found_in"],
            partition=original["partition"],
            offset=original["offset"],
        ),
        changes=tuple(
            FieldDifference(
                what=what, expected=_expected(what, original, run), found=_shown(what, copy, run)
            )
            for what in row["differs"].split(", ")
        )
        if original and copy and row["differs"]
        else (),
    )


def _identity(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in IDENTITY)


def _place(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in PLACE)


def _expected(what: str, original: Row, run: MirrorTestRun) -> str:
    """Return the value that one field of a record must have on the target."""
    if what == "partition" and run.test.spec.partitioning is Partitioning.BY_KEY:
        return "that of most records of its key"
    return _shown(what, original, run)


def _shown(what: str, record: Row, run: MirrorTestRun) -> str:
    """Return one field of a record in the form in which a report shows it."""
    match what:
        case "topic":
            return run.topics[record["found_in"]]
        case "key":
            key = record["key"]
            return (
                "none" if key is None else bytes(key[:_LETTERS]).decode(errors="backslashreplace")
            )
        case "value":
            checksum = record["checksum"]
            return "none" if checksum is None else f"CRC-32 {checksum:08x}"
        case "headers":
            return f"hash {record['headers_hash'] & (1 << 64) - 1:016x}"
        case "timestamp":
            return f"{record['timestamp_ms']} ms"
        case _:
            return str(record[what])
