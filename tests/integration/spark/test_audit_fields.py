"""Fields of ``spec.audit`` on real brokers: where an audit begins, and what a mirror promised."""

from collections.abc import Callable
from datetime import UTC, datetime
from threading import Timer
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flows import spec
from support.patience import WITHIN_S
from support.records import (
    Record,
    delete_records,
    make_topic,
    numbered,
    produce,
    produce_with,
    unique,
)

from headrace.api import MirrorTest, Verdict
from headrace.kafka import Admin
from headrace.mirror_test import (
    AuditedTopic,
    Exclusion,
    MirrorTestRun,
    Result,
    audited_topics,
)
from headrace.sandbox import SandboxCluster
from headrace_spark.audit import ranges
from headrace_spark.audit.comparing import compare
from headrace_spark.audit.judging import judged
from headrace_spark.session import Phases

RECORDS = 20
Audited = Callable[..., Result]


def run(east: SandboxCluster, west: SandboxCluster, topic: str, **fields: Any) -> MirrorTestRun:
    audit = {"topics": [f"{topic}.*"], **fields.pop("audit", {})}
    clusters = {
        side: {"alias": cluster.name, "bootstrapServers": cluster.bootstrap_servers}
        for side, cluster in (("source", east), ("target", west))
    }
    test = {**clusters, "targetTopic": "{topic}", "settleSeconds": 0, "audit": audit, **fields}
    document = {"metadata": {"name": "t"}, "spec": test}
    return MirrorTestRun(name="r", test=MirrorTest.model_validate(document))


def write(cluster: SandboxCluster, topic: str, records: list[Record], partitions: int = 2) -> None:
    make_topic(spec(cluster), topic, partitions)
    produce(spec(cluster), topic, records)


def counts(result: Result) -> dict[str, int]:
    assert result.counts is not None
    names = ("missing", "duplicated", "reordered", "corrupted", "alien")
    return {name: count for name in names if (count := getattr(result.counts, name))}


def test_an_audit_begins_with_the_first_record_or_at_a_time(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("since"), numbered(RECORDS, 2)
    write(east, topic, records)
    write(west, topic, records[3:])  # the mirror began later
    moment = datetime.fromtimestamp(records[3].timestamp_ms / 1000, UTC).isoformat()
    since = {"startFrom": {"mode": "Timestamp", "timestamp": moment}}
    result = judged(run(east, west, topic, audit=since), spark)
    assert result.verdict is Verdict.PASSED, result.reasons
    assert result.counts is not None
    assert result.counts.acknowledged == RECORDS - 3

    result = judged(run(east, west, topic), spark)
    assert (result.verdict, counts(result)) == (Verdict.FAILED, {"missing": 3})


@pytest.mark.parametrize("partitioning", ["Preserved", "ByKey", "Any"])
def test_partitions_and_order_count_only_if_the_mirror_preserves_them(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster, partitioning: str
) -> None:
    topic, records = unique("placed"), numbered(RECORDS, 2)
    write(east, topic, records)
    elsewhere = [one._replace(partition=n % 3) for n, one in enumerate(reversed(records[1:]))]
    write(west, topic, [*elsewhere, elsewhere[0]], partitions=3)
    budgets = {"duplicated": 0}
    result = judged(run(east, west, topic, partitioning=partitioning, budgets=budgets), spark)
    found = counts(result)
    assert result.verdict is Verdict.FAILED
    assert (found["missing"], found["duplicated"]) == (1, 1)
    assert found.keys() >= {"missing", "duplicated", "corrupted", "reordered"} or (
        partitioning != "Preserved" and len(found) == 2
    )


def test_excluded_topics_are_not_compared(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic = unique("kept")
    for name, copies in ((topic, RECORDS), (f"{topic}-old", 1)):
        write(east, name, numbered(RECORDS, 2))
        write(west, name, numbered(copies, 2))
    result = judged(run(east, west, topic, audit={"exclude": [".*-old"]}), spark)
    assert result.verdict is Verdict.PASSED, result.reasons
    assert [one.source for one in result.topics] == [topic]


def test_an_audit_waits_for_records_that_the_source_had_at_its_beginning(
    east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("settling"), numbered(RECORDS, 2)
    write(east, topic, records)
    write(west, topic, records[:-2])
    waits: list[int] = []

    def copy_the_rest() -> None:
        if not waits:
            produce(spec(east), topic, numbered(2, 2, first=RECORDS))
            produce(spec(west), topic, records[-2:])
        waits.append(len(waits))

    of_topic = run(east, west, topic, settleSeconds=60)
    sides = (Admin(side).topics() for side in (of_topic.source, of_topic.target))
    fixed = ranges.fix(of_topic, audited_topics(of_topic, *sides), copy_the_rest)
    assert waits
    assert sum(fixed.frontier.values()) == RECORDS
    assert sum(fixed.target.end.values()) == RECORDS
    assert sum(fixed.source.end.values()) == RECORDS + 2


def test_audit_waits_although_the_target_has_more_offsets_than_the_source(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("behind"), numbered(RECORDS, 2)
    write(east, topic, records)
    delete_records(spec(east), topic, {0: 3, 1: 3})  # retention
    write(west, topic, records[:-2])
    copying = Timer(3, produce, (spec(west), topic, records[-2:]))
    copying.start()
    try:
        result = judged(run(east, west, topic, settleSeconds=12), spark)
    finally:
        copying.join()
    assert result.verdict is Verdict.PASSED, result.reasons
    assert counts(result) == {}


def test_partitions_that_are_added_during_an_audit_are_not_compared(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("growing"), numbered(RECORDS, 2)
    write(east, topic, records)
    write(west, topic, records)
    of_topic, compared, fixed = begun(east, west, topic)
    for cluster in (east, west):
        Admin(spec(cluster)).add_partitions(topic, 3)
    produce(spec(east), topic, numbered(1, [2]))
    found = compare(spark, of_topic, compared, fixed, Phases())
    assert found.differences == ()
    assert found.source[topic].records == RECORDS


def test_records_that_retention_deletes_during_an_audit_are_excluded(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("expiring"), numbered(RECORDS, 2)
    write(east, topic, records)
    write(west, topic, records)
    of_topic, compared, fixed = begun(east, west, topic)
    delete_records(spec(east), topic, {0: 3})
    found = compare(spark, of_topic, compared, fixed, Phases())
    assert found.differences == ()
    assert found.source[topic].records == RECORDS - 3
    assert [(one.reason, one.cluster, one.count) for one in found.excluded] == [
        (Exclusion.DELETED_ON_SOURCE, "east", 3),
        (Exclusion.DELETED_ON_SOURCE, "west", 3),
    ]


def begun(
    east: SandboxCluster, west: SandboxCluster, topic: str
) -> tuple[MirrorTestRun, tuple[AuditedTopic, ...], ranges.Ranges]:
    """Return an audit of a topic, and the ranges that it compares."""
    of_topic = run(east, west, topic)
    compared = audited_topics(of_topic, *(Admin(spec(side)).topics() for side in (east, west)))
    return of_topic, compared, ranges.fix(of_topic, compared, lambda: None)


def test_copies_of_older_records_after_a_transaction_marker_are_not_compared(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("committed"), numbered(RECORDS, 1)
    write(east, topic, records, partitions=1)
    make_topic(spec(west), topic, 1)
    for part in (records[:2], records[2:]):  # a marker has the time of its commit
        settings = {"transactional.id": topic}
        produce_with(spec(west), topic, part, **settings).commit_transaction(WITHIN_S)
    moment = datetime.fromtimestamp(records[4].timestamp_ms / 1000, UTC).isoformat()
    since = {"startFrom": {"mode": "Timestamp", "timestamp": moment}}
    result = judged(run(east, west, topic, audit=since, budgets={"duplicated": 0}), spark)
    assert result.verdict is Verdict.PASSED, result.reasons
    assert result.counts is not None
    assert result.counts.acknowledged == RECORDS - 4


def test_audit_waits_for_the_copy_of_a_new_topic(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, records = unique("new"), numbered(RECORDS, 2)
    write(east, topic, records)
    discovering = Timer(2, write, (west, topic, records))
    discovering.start()
    try:
        result = judged(run(east, west, topic, settleSeconds=60), spark)
    finally:
        discovering.join()
    assert result.verdict is Verdict.PASSED, result.reasons
