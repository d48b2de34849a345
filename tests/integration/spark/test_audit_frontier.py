"""Audits that continue where the last one ended, on real brokers."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flows import spec
from support.records import Record, delete_records, make_topic, numbered, produce, unique

from headrace.api import MirrorTest, Verdict, audits_topic
from headrace.errors import GaveUp
from headrace.kafka import Admin, CompactedTopic
from headrace.mirror_test import AuditedPast, MirrorTestRun, Result, audited_topics
from headrace.sandbox import SandboxCluster
from headrace_spark.audit import frontier
from headrace_spark.audit.judging import judged

PARTITIONS = 2
EDIT = Callable[[dict[str, Any]], object]


class Mirror:
    """A topic with two partitions and its correct copy, which audits compare."""

    def __init__(self, spark: SparkSession, east: SandboxCluster, west: SandboxCluster) -> None:
        self._spark, self.east, self.west = spark, east, west
        self.topic = unique("incremental")
        self._sent = self._runs = 0
        for cluster in (east, west):
            make_topic(spec(cluster), self.topic, PARTITIONS)

    def send(self, count: int) -> list[Record]:
        """Append records to both sides."""
        records = numbered(count, PARTITIONS, first=self._sent)
        self._sent += count
        for cluster in (self.east, self.west):
            produce(spec(cluster), self.topic, records)
        return records

    def run(self, **audit: Any) -> MirrorTestRun:
        self._runs += 1
        clusters = {
            side: {"alias": cluster.name, "bootstrapServers": cluster.bootstrap_servers}
            for side, cluster in (("source", self.east), ("target", self.west))
        }
        test = {
            "metadata": {"name": "nightly"},
            "spec": {
                **clusters,
                "targetTopic": "{topic}",
                "settleSeconds": 1,
                "audit": {
                    "topics": [f"{self.topic}.*"],
                    "startFrom": {"mode": "LastAudit"},
                    **audit,
                },
            },
        }
        return MirrorTestRun(name=f"run-{self._runs}", test=MirrorTest.model_validate(test))

    def audited(self, **audit: Any) -> tuple[Result, AuditedPast, int]:
        """Return the result, the outcome for earlier ranges, and the source records it compared."""
        result = judged(self.run(**audit), self._spark)
        assert result.audit is not None
        assert result.audit.past is not None
        return result, result.audit.past, sum(t.source_records for t in result.audit.topics)

    def frontier(self, run: MirrorTestRun) -> frontier.Frontier:
        admins = (Admin(run.source), Admin(run.target))
        topics = audited_topics(run, *(admin.topics() for admin in admins))
        return frontier.read(run, admins[0].cluster_id(), topics)

    def change_frontier(self, edit: EDIT) -> None:
        """Change the stored record of partition 0."""
        run = self.run()
        found = self.frontier(run)
        key = found.key((self.topic, 0))
        topic = CompactedTopic(run.target, audits_topic(run.source.alias), "headrace-audits-test")
        record = json.loads(topic.read()[key])
        edit(record)
        assert topic.replace(lambda _: True, {key: json.dumps(record).encode()})


@pytest.fixture
def mirror(spark: SparkSession, east: SandboxCluster, west: SandboxCluster) -> Mirror:
    return Mirror(spark, east, west)


def test_an_audit_compares_only_what_the_last_one_did_not(mirror: Mirror) -> None:
    old = mirror.send(40)
    # A compacted topic is compared from its first record each time.
    compacted = f"{mirror.topic}.compacted"
    for cluster in (mirror.east, mirror.west):
        make_topic(spec(cluster), compacted, 1, **{"cleanup.policy": "compact"})
        produce(spec(cluster), compacted, [one._replace(partition=0) for one in old[:3]])
    result, past, compared = mirror.audited()
    assert (result.verdict, compared) == (Verdict.PASSED, 40 + 3), result.reasons
    assert past == AuditedPast(is_stored=True)

    mirror.send(10)
    result, past, compared = mirror.audited()
    assert (result.verdict, compared) == (Verdict.PASSED, 10 + 3), result.reasons
    assert "all 13 new records of 2 topics" in result.reasons[0]
    assert (past.blocks, past.rechecked, past.unchecked) == (4, 4, 0)

    # A copy that arrives again is not alien, although its original is before the frontier.
    # Retention of the source deletes the first stored block of a partition.
    produce(spec(mirror.west), mirror.topic, old[:1])
    delete_records(spec(mirror.east), mirror.topic, {1: 5})
    result, past, compared = mirror.audited(recheck="Full")
    assert (result.verdict, compared) == (Verdict.PASSED, 3), result.reasons
    assert result.counts is not None
    assert (result.counts.duplicated, result.counts.alien) == (1, 0)
    assert (past.blocks, past.rechecked, past.unchecked) == (8, 7, 1)


def test_a_past_that_changed_is_found(mirror: Mirror) -> None:
    mirror.send(40)
    mirror.audited()

    def lose_five(record: dict[str, Any]) -> None:
        """Store that the target had five more records, as if it had lost them since."""
        record["targetOffset"] += 5
        record["targetBlocks"][-1][1] += 5
        record["targetBlocks"][-1][2] += 5

    mirror.change_frontier(lose_five)
    result, past, _ = mirror.audited()
    assert result.verdict is Verdict.FAILED
    [changed] = past.changed
    assert (changed.cluster, changed.first, changed.last) == ("west", 0, 24)
    assert (changed.expected, changed.found) == (25, 20)
    assert past.is_stored is None
    assert result.reasons[0] == (
        "records have changed since an earlier audit compared them: "
        f"{mirror.topic}-0 offsets 0 to 24 of west"
    )

    # The topic was created again, so its frontier says nothing.
    mirror.change_frontier(lambda record: record.update(targetTopicId="another"))
    result, past, compared = mirror.audited()
    assert (result.verdict, compared) == (Verdict.PASSED, 40), result.reasons
    assert past.begun_again == (mirror.topic,)


def test_a_frontier_is_moved_by_one_of_two_audits(mirror: Mirror) -> None:
    mirror.send(10)
    run = mirror.run()
    known = mirror.frontier(run)
    mirror.audited()
    stored = mirror.frontier(run).known
    assert known.known == {}
    assert stored
    assert not known.store(stored), "another audit has stored a frontier since"
    assert mirror.frontier(run).known == stored

    mirror.change_frontier(lambda record: record.update(version=2))
    with pytest.raises(GaveUp, match="a newer version of headrace wrote the frontier") as error:
        mirror.audited()
    assert f"{mirror.topic}-0 in topic mm2-headrace-audits.east.internal of west" in str(error)
