"""Ranges of a test's log, and the error if records of the test are lost."""

from collections.abc import Mapping, Sequence

import pytest
from support.fake_kafka import MARKER, FakeCluster, FakeKafka, FakeLog
from support.manifests import mirror_test_of_another

from headrace.api import ClusterAccess, MirrorTest, TopicPartition
from headrace.errors import GaveUp
from headrace.mirror_test import MirrorTestRun
from headrace.mirror_test.load import LoadedTopic, LoadManifest
from headrace_spark import comparison, messages
from headrace_spark.audit.frontier import AuditedPartition, SourcePartition
from headrace_spark.audit.ranges import AuditedSide, Ranges

RUN = MirrorTestRun(
    name="r1", test=MirrorTest.model_validate(mirror_test_of_another("t", load={"topics": 1}))
)
MANIFEST = LoadManifest(
    run="r1",
    topics=(
        LoadedTopic(
            name="t-0",
            keys=2,
            start_offsets=(100, 0),
            end_offsets=(200, 50),
            target_start_offsets=(70, 0),
        ),
    ),
    streams=(),
    started_ms=1,
    finished_ms=2,
    acknowledged_per_second=(),
)


Logs = Mapping[str, Sequence[tuple[int, int]]]
"""First offset and end of each partition, by topic."""


def set_topics(cluster: FakeCluster, logs: Logs) -> None:
    """Replace the topics of a cluster."""
    cluster.ids.clear()
    cluster.logs.clear()
    for topic, ranges in logs.items():
        cluster.create_topic(topic, len(ranges))
        for number, (start, end) in enumerate(ranges):
            cluster.logs[TopicPartition(topic, number)] = FakeLog(start, [MARKER] * (end - start))


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCluster]:
    there = FakeKafka("east", "west").clusters
    set_topics(there["east"], {"t-0": ((0, 200), (0, 50))})
    set_topics(there["west"], {"east.t-0": ((0, 170), (0, 50))})

    def admin(cluster: ClusterAccess) -> FakeCluster:
        return there[cluster.alias]

    for module in (comparison, messages):
        monkeypatch.setattr(module, "PatientAdmin", admin)
    return there


def test_the_ranges_of_logs_that_are_whole(clusters: dict[str, FakeCluster]) -> None:
    source, target = comparison.of_source(RUN, MANIFEST), comparison.of_target(RUN, MANIFEST)
    assert (source.start, source.end) == ({"t-0": (100, 0)}, {"t-0": (200, 50)})
    assert (target.start, target.end) == ({"east.t-0": (70, 0)}, {"east.t-0": (170, 50)})
    assert target.source_names == {"east.t-0": "t-0"}


def test_a_topic_that_the_target_never_had_holds_nothing(clusters: dict[str, FakeCluster]) -> None:
    new = MANIFEST.topics[0].model_copy(update={"target_start_offsets": ()})
    manifest = MANIFEST.model_copy(update={"topics": (new,)})
    set_topics(clusters["west"], {})
    assert comparison.of_target(RUN, manifest).source_names == {}


@pytest.mark.parametrize(
    ("alias", "logs", "said"),
    [
        ("east", {"t-0": ((120, 200), (0, 50))}, "t-0-0 begins at offset 120, and the test's"),
        ("east", {"t-0": ((0, 10), (0, 50))}, "t-0-0 ends at offset 10, and ended at 200 before"),
        ("east", {"t-0": ((0, 200),)}, "topic t-0 has 1 partitions, not 2: it was replaced"),
        ("east", {}, "topic t-0 was deleted"),
        ("west", {"east.t-0": ((90, 170), (0, 9))}, "east.t-0-0 begins at offset 90"),
        (
            "west",
            {"east.t-0": ((0, 30), (0, 9))},
            "east.t-0-0 ends at offset 30, and ended at 70 before",
        ),
        ("west", {}, "topic east.t-0 was deleted"),
    ],
)
def test_a_lost_range_is_said_with_cluster_topic_and_offset(
    clusters: dict[str, FakeCluster],
    alias: str,
    logs: Logs,
    said: str,
) -> None:
    set_topics(clusters[alias], logs)
    with pytest.raises(GaveUp, match=f"{alias} has lost records of this test: {said}"):
        (comparison.of_source if alias == "east" else comparison.of_target)(RUN, MANIFEST)


def test_manifest_has_all_offsets_that_the_source_received() -> None:
    assert MANIFEST.records == 150


def test_audit_reads_the_records_of_the_larger_side() -> None:
    assert audited_ranges().records == 60


def test_audit_that_continues_may_read_earlier_records_again() -> None:
    continued = AuditedPartition(
        run="r0",
        judged_ms=1,
        source_topic_id="a",
        target_topic_id="b",
        source_offset=150,
        target_offset=120,
        is_stamped=False,
    )
    assert audited_ranges({("t-0", 0): continued}).records == 150


def audited_ranges(resumed: Mapping[SourcePartition, AuditedPartition] | None = None) -> Ranges:
    """Return ranges of 50 records on the source and of 60 records on the target."""

    def side(cluster: ClusterAccess, name: str, oldest: int, start: int, end: int) -> AuditedSide:
        at = TopicPartition(name, 0)
        return AuditedSide(cluster, {name: "t-0"}, {}, {at: oldest}, {at: start}, {at: end})

    source = side(RUN.source, "t-0", 50, 150, 200)
    target = side(RUN.target, "east.t-0", 100, 120, 180)
    return Ranges(source, target, {}, {}, frozenset(), resumed or {})
