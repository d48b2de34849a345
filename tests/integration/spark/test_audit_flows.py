"""Audits of flows that change, filter or refuse records, and of schema ids."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.raw_records import Raw, kafka_source
from support.records import delete_records, make_topic, numbered, produce, unique
from support.schema_registry import framed, running_schema_registry

from headrace.api import (
    HeaderChanges,
    MirrorTest,
    RecordFilter,
    RecordPart,
    ReplicationFlow,
    Verdict,
)
from headrace.mirror_test import (
    Exclusion,
    FlowChanges,
    MirrorTestRun,
    Result,
    ShownBytes,
    ShownRecord,
    resolve,
)
from headrace.replication import RecordChanges
from headrace.sandbox import SandboxCluster
from headrace_spark.audit.decodability import SchemaUse, schema_uses
from headrace_spark.audit.differences import HashedRecord
from headrace_spark.audit.flow_records import copied, found_in
from headrace_spark.audit.judging import judged
from headrace_spark.audit.records import hashed

ORDERS = "orders"
NAMES, VALUES = ("a", "b", "", "ü"), (None, b"", b"1", b"2", "ä".encode(), b"\xff\x00")


def some(dice: random.Random, count: int) -> list[dict[str, Any]]:
    """Return header matches, of which some have a value."""
    found = [
        {"name": dice.choice("abü"), "value": dice.choice(["", "1", "ä"])} for _ in range(count)
    ]
    return [one if dice.random() < 0.7 else {"name": one["name"]} for one in found]


def random_headers(dice: random.Random, count: int) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((dice.choice(NAMES), dice.choice(VALUES)) for _ in range(count))


def random_changes(dice: random.Random) -> tuple[RecordFilter | None, HeaderChanges | None]:
    include = some(dice, dice.randrange(3))
    exclude = [one for one in some(dice, dice.randrange(2)) if one not in include]
    wanted = {"include": include, "exclude": exclude}
    added = {name: dice.choice(["", "1", "ä"]) for name in dice.sample("abcü", dice.randrange(3))}
    headers = {
        "remove": dice.sample("abü", dice.randrange(3)),
        "add": [{"name": name, "value": value} for name, value in added.items()],
    }
    return (
        RecordFilter.model_validate({"headers": wanted}) if dice.random() < 0.8 else None,
        HeaderChanges.model_validate(headers) if dice.random() < 0.8 else None,
    )


def test_the_source_is_read_as_the_flow_copies_it(spark: SparkSession) -> None:
    dice = random.Random(42)
    log = [Raw(ORDERS, 0, n, b"k", b"v", random_headers(dice, n % 4), n) for n in range(200)]
    source = kafka_source(spark, log).cache()
    kept = 0
    for _ in range(25):
        wanted, headers = random_changes(dice)
        flow = RecordChanges(wanted, headers)
        expected = [
            (one.offset, found)
            for one in log
            if (found := flow.apply(one.headers) if flow.concern(ORDERS) else one.headers)
            is not None
        ]
        changes = FlowChanges(record_filter=wanted, headers=headers)
        rows = copied(source, changes).select("offset", "headers").orderBy("offset").collect()
        assert [
            (row["offset"], tuple((name, value) for name, value in row["headers"])) for row in rows
        ] == expected, changes
        kept += len(rows)
    assert 0 < kept < 25 * 200


def test_rows_count_only_records_that_are_copied(spark: SparkSession) -> None:
    log = [Raw(ORDERS, 0, n, b"k", b"v", (("n", b"%d" % (n % 2)),), n) for n in range(6)]
    wanted = RecordFilter.model_validate({"headers": {"include": [{"name": "n", "value": "1"}]}})
    source = copied(kafka_source(spark, log), FlowChanges(record_filter=wanted))
    found = hashed(source, {ORDERS: ORDERS}, ()).select("offset", "row").collect()
    assert [tuple(row) for row in found] == [(1, 0), (3, 1), (5, 2)]


def letter(offset: int, *, flow: str = "f", value: bytes = b"v", first: str = "", **at: Any) -> Raw:
    """Return a dead letter. ``first`` is the offset in a header that the record had before."""
    context = {"topic": ORDERS, "partition": 0, "offset": offset, "connector.name": flow, **at}
    headers = tuple((f"__connect.errors.{name}", str(v).encode()) for name, v in context.items())
    own = (("__connect.errors.offset", first.encode()),) if first else ()
    return Raw("dead", 0, offset, b"k", value, own + headers, 0)


def records_of(spark: SparkSession, log: list[Raw]) -> list[HashedRecord]:
    columns = ("topic", "partition", "offset", "timestamp_ms")
    rows: DataFrame = hashed(kafka_source(spark, log), {ORDERS: ORDERS}, ())
    hashes = ("key_hash", "value_hash", "headers_hash", "content")
    return [HashedRecord(*row) for row in rows.select(*columns, *hashes).collect()]


def test_a_dead_letter_excuses_only_the_record_that_it_names(spark: SparkSession) -> None:
    log = [Raw(ORDERS, 0, n, b"k", b"v", (), 0) for n in range(9)]
    letters = [
        letter(1),
        letter(1),  # written twice, because the outcome of the first write was unknown
        letter(2, flow="another"),
        letter(3, topic="users"),
        letter(4, partition=1),
        letter(5, value=b"w"),
        letter(6, first="7x"),
        letter(99),
        Raw("dead", 0, 100, b"k", b"v", (), 0),
    ]
    found = found_in(kafka_source(spark, letters), "f", records_of(spark, log))
    assert found == {(ORDERS, 0, 1)}


def test_schema_ids_are_counted_by_topic_and_part(spark: SparkSession) -> None:
    log = [
        Raw(ORDERS, 0, 0, None, framed(7), (), 0),
        Raw(ORDERS, 1, 1, framed(300), framed(7, b"x"), (), 0),
        Raw(ORDERS, 0, 2, b"\0\0\0\0", b"\0\0\0\0", (), 0),  # too short
        Raw(ORDERS, 0, 3, b"", None, (), 0),
        Raw(ORDERS, 0, 4, b"k", b"\x01\0\0\0\x07", (), 0),
        Raw("users", 0, 5, None, framed(2**32 - 1), (), 0),
    ]
    found = schema_uses(kafka_source(spark, log), tuple(RecordPart))
    assert found == [
        SchemaUse(ORDERS, "Key", 300, 1, 1, 1),
        SchemaUse(ORDERS, "Value", 7, 2, 0, 0),
        SchemaUse("users", "Value", 2**32 - 1, 1, 0, 5),
    ]
    assert len(schema_uses(kafka_source(spark, log), (RecordPart.KEY,))) == 1


def audit_of(spark: SparkSession, flow: dict[str, Any], **audit: Any) -> Result:
    """Audit a flow, whether it runs or not."""
    spec = {"flowName": flow["metadata"]["name"], "settleSeconds": 0, "audit": audit}
    test = MirrorTest.model_validate({"metadata": {"name": "t"}, "spec": spec})
    resolved = resolve(test, ReplicationFlow.model_validate(flow))
    return judged(MirrorTestRun(name="r", test=resolved), spark)


FILTER = {"headers": {"exclude": [{"name": "test", "value": "1"}]}}
HEADERS = {"remove": ["trace"], "add": [{"name": "via", "value": "headrace"}]}
TOO_LARGE, FILTERED = 7, 9


def test_what_a_flow_does_on_purpose_is_no_difference(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    topic, copy, dead = unique("audited"), unique("sales"), unique("refused")
    make_topic(spec(east), topic, 1)
    make_topic(spec(west), copy, 1, **{"max.message.bytes": "20000"})
    source = [one._replace(headers=(*one.headers, ("trace", b"1"))) for one in numbered(40, 1)]
    source[TOO_LARGE] = source[TOO_LARGE]._replace(value=b"x" * 30_000)
    source[FILTERED] = source[FILTERED]._replace(headers=(("test", b"1"),))
    produce(spec(east), topic, source)
    flow = manifest(
        topic, east, west, topic,
        replicationPolicy={"type": "RenameMap", "renames": {topic: copy}},
        recordFilter=FILTER,
        headers=HEADERS,
        onRecordError={"action": "DeadLetter", "deadLetterTopic": dead},
    )  # fmt: skip
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end(WITHIN_S) == 0, run.output

    result = audit_of(spark, flow, examples="Records")
    assert result.verdict is Verdict.PASSED, result.reasons
    assert result.counts is not None
    assert result.counts.acknowledged == 38
    assert result.audit is not None
    [excused] = result.audit.excluded
    assert (excused.reason, excused.cluster) == (Exclusion.REFUSED, "east")
    assert (excused.topic, excused.first, excused.last, excused.count) == (topic, 7, 7, 1)
    assert (
        f"the source was compared as flow {topic} copies it, with spec.recordFilter and "
        "spec.headers" in result.warnings
    )

    # The mirror copies a record that the filter excludes, and the dead letter is deleted.
    produce(spec(west), copy, [source[FILTERED]])
    delete_records(spec(west), dead, {0: 1})
    result = audit_of(spark, flow, examples="Records")
    assert result.verdict is Verdict.FAILED
    assert result.counts is not None
    assert (result.counts.missing, result.counts.alien) == (1, 1)
    alien, missing = sorted(result.differences, key=lambda one: one.kind)
    assert missing.source is not None
    assert (missing.source.topic, missing.source.offset) == (topic, TOO_LARGE)
    assert missing.source_record == ShownRecord(
        key=ShownBytes.of(b"key-7"), value=ShownBytes.of(b"x" * 30_000)
    )
    assert missing.target_record is None
    assert alien.target_record == ShownRecord(
        key=ShownBytes.of(b"key-9"), value=ShownBytes.of(b"value-9")
    )


@pytest.mark.parametrize(
    "mode", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.long)]
)
def test_skipped_records_are_excused_by_their_offsets(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster, tmp_path: Path, mode: str
) -> None:
    topic = unique("skipped")
    make_topic(spec(east), topic, 1)
    make_topic(spec(west), topic, 1, **{"max.message.bytes": "20000"})
    source = numbered(20, 1)
    for place in (3, 4, 9):
        source[place] = source[place]._replace(value=b"x" * 30_000)
    produce(spec(east), topic, source)
    flow = manifest(
        topic, east, west, topic,
        replicationPolicy={"type": "Identity"},
        onRecordError={"action": "Skip"},
        delivery={"mode": mode},
    )  # fmt: skip
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end(WITHIN_S) == 0, run.output

    result = audit_of(spark, flow)
    assert result.verdict is Verdict.PASSED, result.reasons
    assert result.audit is not None
    [excused] = result.audit.excluded
    assert (excused.reason, excused.first, excused.last, excused.count) == (
        (Exclusion.REFUSED, 3, 9, 3)
    )

    # The flow has skipped three records, and not this one.
    produce(spec(east), topic, numbered(1, 1, first=20))
    result = audit_of(spark, flow)
    assert result.verdict is Verdict.FAILED
    assert result.counts is not None
    assert result.counts.missing == 1
    [missing] = result.differences
    assert missing.source is not None
    assert missing.source.offset == 20


def test_a_filtered_record_may_have_superseded_a_copied_one(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic = unique("compacted")
    one, old, new = numbered(3, 1)
    filtered = new._replace(key=old.key, headers=(("test", b"1"),))
    # The source has compacted ``old``. The target has its copy, because ``filtered`` is not copied.
    for cluster, records in ((east, [one, filtered]), (west, [one, old])):
        make_topic(spec(cluster), topic, 1, **{"cleanup.policy": "compact"})
        produce(spec(cluster), topic, records)

    flow = manifest("f", east, west, topic, replicationPolicy={"type": "Identity"})
    filtering = {**flow, "spec": {**flow["spec"], "recordFilter": FILTER}}
    result = audit_of(spark, filtering)
    assert result.verdict is Verdict.PASSED, result.reasons
    assert result.audit is not None
    [excluded] = result.audit.excluded
    assert (excluded.reason, excluded.cluster, excluded.first) == (
        (Exclusion.DELETED_ON_SOURCE, "west", 1)
    )
    assert audit_of(spark, flow).verdict is Verdict.FAILED


@pytest.fixture
def framed_topic(east: SandboxCluster, west: SandboxCluster) -> str:
    """Write records with the schema ids 1 and 2. The copy lacks the last record."""
    topic = unique("framed")
    records = [
        one._replace(value=framed(1 + n % 2, one.value or b""))
        for n, one in enumerate(numbered(10, 1))
    ]
    for cluster, count in ((east, 10), (west, 9)):
        make_topic(spec(cluster), topic, 1)
        produce(spec(cluster), topic, records[:count])
    return topic


def test_schema_ids_that_the_registry_does_not_know_are_found(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster, framed_topic: str
) -> None:
    def audited(url: str, **budgets: int) -> Result:
        test = {
            "source": {"alias": "east", "bootstrapServers": east.bootstrap_servers},
            "target": {"alias": "west", "bootstrapServers": west.bootstrap_servers},
            "targetTopic": "{topic}",
            "settleSeconds": 0,
            "audit": {"topics": [framed_topic], "schemas": {"url": url}},
            "budgets": {"missing": 1, **budgets},
        }
        run = MirrorTest.model_validate({"metadata": {"name": "t"}, "spec": test})
        return judged(MirrorTestRun(name="r", test=run), spark)

    with running_schema_registry({1, 2}) as registry:
        result = audited(registry.url)
        assert result.verdict is Verdict.PASSED, result.reasons
        assert result.audit is not None
        assert result.audit.schemas is not None
        assert result.audit.schemas.records == 9

        registry.ids = {1}
        result = audited(registry.url)
        assert result.verdict is Verdict.FAILED
        assert result.reasons == (
            "keys and values that nobody can decode: 4 on the target have a schema id that the "
            f"registry {registry.url} does not know (allowed: 0), for example id 2 in the value of "
            f"{framed_topic}-0 offset 1",
        )
        assert audited(registry.url, undecodable=4).verdict is Verdict.PASSED

    # The registry does not answer. The records are still compared.
    result = audited(registry.url)
    assert result.verdict is Verdict.INCONCLUSIVE
    [reason] = result.reasons
    assert reason.startswith(
        "it is unknown whether the records can be decoded: the schema registry "
        f"{registry.url} refuses connections"
    )
    assert result.counts is not None
    assert result.counts.missing == 1
    result = audited(registry.url, missing=0)
    assert result.verdict is Verdict.FAILED
    assert result.reasons[0].startswith("1 record is missing on the target (allowed: 0)")
