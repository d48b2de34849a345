"""Schema ids of the target's records, and whether the target's registry knows them.

A record in Confluent's wire format begins with the magic byte 0 and a schema id of 4 bytes. Without
the schema, nobody can decode it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import AuditSchemas, RecordPart
from headrace.errors import HeadraceError
from headrace.kafka import SchemaRegistry
from headrace.mirror_test import MAX_UNKNOWN_SCHEMAS, MirrorTestRun, SchemaCheck, UnknownSchema
from headrace_spark.audit.ranges import AuditedSide
from headrace_spark.records import raw

_MAX_USES = 10_000
"""Maximum number of different combinations of topic, part and schema id."""
_FIELD = "spec.audit.schemas"


class SchemaUse(NamedTuple):
    """Records of one topic with one schema id."""

    topic: str
    """Topic name on the target."""
    part: str
    schema_id: int
    records: int
    partition: int
    offset: int
    """Target offset of the first of these records, in ``partition``."""


@dataclass(frozen=True)
class _Part:
    name: RecordPart
    column: str


_PARTS = (_Part(RecordPart.KEY, "key"), _Part(RecordPart.VALUE, "value"))


def check_schemas(spark: SparkSession, run: MirrorTestRun, target: AuditedSide) -> SchemaCheck:
    """Read the target again, and request the schema of each id in its records from the registry.

    If the registry does not respond, the result contains the error.
    """
    audit = run.test.spec.audit
    assert audit is not None
    assert audit.schemas is not None
    names = _chosen(target.names, audit.schemas)
    wanted = {at for at in target.start if at.topic in names}
    if not wanted:
        return SchemaCheck()
    spans = {at: (target.start[at], max(target.start[at], target.end[at])) for at in wanted}
    records = raw(spark, target.cluster, target.range(spans)).where(F.col("topic").isin(*names))
    uses = schema_uses(records, audit.schemas.parts)
    if len(uses) > _MAX_USES:
        return SchemaCheck(problem=f"the records have more than {_MAX_USES:,} schema ids")
    registry = SchemaRegistry(audit.schemas, _FIELD, run.secrets)
    try:
        unknown = registry.unknown(use.schema_id for use in uses)
    except HeadraceError as error:
        return SchemaCheck(records=_count(uses), problem=str(error))
    found = sorted((use for use in uses if use.schema_id in unknown), key=lambda u: -u.records)
    return SchemaCheck(
        records=_count(uses),
        undecodable=_count(found),
        unknown=tuple(UnknownSchema(**use._asdict()) for use in found[:MAX_UNKNOWN_SCHEMAS]),
    )


def schema_uses(records: DataFrame, parts: Iterable[RecordPart]) -> list[SchemaUse]:
    """Return the schema ids in records of Spark's Kafka source, at most ``_MAX_USES`` + 1."""
    wanted = [part for part in _PARTS if part.name in set(parts)]
    used = F.array(
        *(
            F.struct(F.lit(part.name.value).alias("part"), _schema_id(part.column).alias("id"))
            for part in wanted
        )
    )
    place = F.min(F.struct("partition", "offset"))
    found = (
        records.select("topic", "partition", "offset", F.explode(used).alias("used"))
        .where(F.col("used.id").isNotNull())
        .groupBy("topic", "used.part", "used.id")
        .agg(F.count("*").alias("records"), place.alias("place"))
        .limit(_MAX_USES + 1)
    )
    return sorted(
        SchemaUse(
            row["topic"], row["part"], row["id"], row["records"],
            row["place"]["partition"], row["place"]["offset"],
        )
        for row in found.collect()
    )  # fmt: skip


def _schema_id(column: str) -> Column:
    """Return the schema id of a key or a value, or null if it has another format."""
    head = F.hex(F.substring(column, 1, 5))
    is_framed = (F.length(column) >= 5) & head.startswith("00")
    return F.when(is_framed, F.conv(F.substring(head, 3, 8), 16, 10).cast("bigint"))


def _chosen(names: Mapping[str, str], schemas: AuditSchemas) -> list[str]:
    """Return the target topics whose records are checked."""
    if schemas.topics is None:
        return sorted(names)
    patterns = [re.compile(pattern) for pattern in schemas.topics]
    return sorted(copy for copy, name in names.items() if any(p.fullmatch(name) for p in patterns))


def _count(uses: Iterable[SchemaUse]) -> int:
    return sum(use.records for use in uses)
