"""Watch of the source after a fail-over, on clusters in memory."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import (
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationFlow,
    ReplicationTaskStatus,
    find_condition,
)
from headrace.connect.failover.source_watcher import SourceWatcher
from headrace.connect.failover.switch import Wish, switch
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Retriable
from headrace.kafka import ActiveProducer
from headrace.replication import Progress, ProgressKey

STILL = ConditionType.SOURCE_STILL_WRITTEN


class Watched:
    """A flow of ten copied records that is failed over, and the watch of its source."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.source = scene, scene.source
        scene.start()
        scene.source.append(TOPIC, *[b"x"] * 10)
        scene.settle()
        scene.clock.advance(60)
        self.unit = self.start()

    def start(self, **before: Any) -> SourceWatcher:
        """Make an instance of the unit; ``before`` are fields of the last status."""
        task = SimpleNamespace(
            metadata=SimpleNamespace(generation=1), status=ReplicationTaskStatus(**before)
        )
        ownership = SimpleNamespace(name="f-source-watch-0", task=task)
        context = self.scene.context
        self.unit = SourceWatcher(cast("Any", ownership), context, cast("Any", None), lambda: None)
        self.unit.restore()
        return self.unit

    def fail_over(self) -> None:
        context = self.scene.context
        context.progress.read_to_end()
        ends = {P0: 10, P1: 0}
        wishes = {at: Wish(self.scene.stored(at), end) for at, end in ends.items()}
        assert set(switch(context, wishes, planned=True)) == {P0, P1}
        self.unit.run_once()

    def write(self, partition: int, records: int, *producers: ActiveProducer) -> None:
        """Write records, by producers that brokers then name."""
        self.source.append(TOPIC, *[b"late"] * records, partition=partition)
        at = P1 if partition else P0
        known = {one.producer_id: one for one in self.source.wrote.get(at, ())}
        known |= {one.producer_id: one for one in producers}
        self.source.wrote[at] = tuple(known.values())

    def said(self) -> str:
        """Return the message of the condition, or an empty string."""
        self.unit.run_once()
        found = find_condition(self.unit.status.conditions, STILL)
        return found.message if found else ""

    def ready(self) -> tuple[ConditionStatus, Reason, str]:
        found = find_condition(self.unit.status.conditions, ConditionType.READY)
        assert found is not None
        return found.status, found.reason, found.message

    def offsets(self) -> dict[int, int]:
        return {one.partition: one.offsets for one in self.unit.status.source_writes}


@pytest.fixture
def watched(scene: Scene) -> Iterator[Watched]:
    made = Watched(scene)
    yield made
    made.unit.close()


def producer(id: int, sequence: int, name: str = "", last_ms: int = 0) -> ActiveProducer:
    return ActiveProducer(id, name, last_ms, sequence)


def test_a_flow_that_is_not_failed_over_is_not_watched(watched: Watched) -> None:
    watched.write(0, 3)
    assert watched.said() == ""
    assert "the flow is not failed over" in watched.ready()[2]


def test_producers_with_old_timestamps_are_named_by_their_sequences(watched: Watched) -> None:
    watched.source.wrote[P0] = (producer(1, 4), producer(2, 9))
    watched.fail_over()
    assert watched.said() == ""
    watched.write(0, 5, producer(2, 14), producer(3, 2, "pay"))
    assert "orders-0 has 5 new offsets since" in watched.said()
    (write,) = watched.unit.status.source_writes
    assert {one.producer_id for one in write.producers} == {2, 3}
    assert "producer id 3 of transactional id pay" in watched.said()


def test_a_timestamp_that_no_date_has_is_the_last_one(watched: Watched) -> None:
    watched.fail_over()
    watched.write(0, 1, producer(1, 0, last_ms=1_760_000_000_000_000))
    assert "orders-0 has 1 new offsets since" in watched.said()
    (write,) = watched.unit.status.source_writes
    assert [one.last_timestamp.year for one in write.producers] == [9999]


def test_a_later_write_keeps_the_first_time_also_of_another_driver(watched: Watched) -> None:
    watched.fail_over()
    watched.write(1, 2)
    assert "by a producer without a producer id" in watched.said()
    (first,) = watched.unit.status.source_writes
    watched.scene.clock.advance(3600)
    watched.unit.close()
    watched.start(source_writes=watched.unit.status.source_writes)
    watched.write(1, 1)
    watched.said()
    (later,) = watched.unit.status.source_writes
    assert (later.offsets, later.since) == (3, first.since)


@pytest.mark.parametrize(("partitions", "others"), [(5, ""), (7, "; and 2 more partitions")])
def test_five_partitions_are_named_and_others_are_counted(
    watched: Watched, partitions: int, others: str
) -> None:
    watched.fail_over()
    watched.source.delete_topic(TOPIC)
    watched.source.create_topic(TOPIC, partitions)
    for number in range(partitions):
        watched.source.append(TOPIC, b"late", partition=number)
    said = watched.said()
    assert said.count("has 1 new offsets") == 5
    assert f"do not know who wrote them{others}. Stop these producers" in said


def test_all_records_of_a_topic_that_was_created_again_count(watched: Watched) -> None:
    watched.fail_over()
    watched.source.recreate_topic(TOPIC)
    assert watched.said() == ""
    watched.write(0, 4)
    assert "orders-0 has 4 new offsets" in watched.said()


def test_partitions_that_do_not_answer_are_not_called_unwritten(watched: Watched) -> None:
    watched.fail_over()
    watched.write(0, 4)
    watched.said()
    watched.source.silent.add(P0)
    assert "orders-0 has 4 new offsets" in watched.said()
    assert watched.ready()[:2] == (ConditionStatus.FALSE, Reason.SOURCE_UNREACHABLE)
    watched.source.away = True
    with pytest.raises(Retriable):
        watched.unit.run_once()
    assert "the source is not watched: no broker of east" in watched.ready()[2]


def test_a_broker_of_another_cluster_is_not_believed(watched: Watched) -> None:
    watched.fail_over()
    watched.write(0, 4)
    watched.source.foreign_broker = True
    with pytest.raises(Retriable):
        watched.unit.run_once()
    assert watched.offsets() == {}


def test_old_brokers_name_no_producers(watched: Watched) -> None:
    watched.source.too_old = True
    watched.fail_over()
    watched.write(0, 4)
    why = "by producers that are not known (east serves no describe_producers)"
    assert why in watched.said()
    assert why in watched.said(), "nothing has changed"
    watched.source.too_old = False
    watched.source.wrote[P0] = (producer(7, 3, last_ms=watched.scene.context.now_ms + 1),)
    assert "by producer id 7" in watched.said()


@pytest.mark.parametrize(
    ("owner", "more", "ends"),
    [
        ("f-back-source-task-0 on me/1", {}, True),
        ("reverse by abc", {}, False),
        ("f-back-source-task-0 on me/1", {"topic": "heartbeats"}, False),
        ("f-back-source-task-0 on me/1", {"target_topic": "west.orders"}, False),
        ("f-back-source-task-0 on me/1", {"source_cluster_id": "of another"}, False),
    ],
)
def test_a_driver_that_copies_back_into_watched_topics_ends_the_watch(
    watched: Watched, owner: str, more: dict[str, str], *, ends: bool
) -> None:
    watched.fail_over()
    key = {"source_cluster_id": "id-of-west", "topic": COPY, "target_topic": TOPIC} | more
    reverse = ReplicationFlow.model_validate(
        {
            "metadata": {"name": "f-back"},
            "spec": {
                "source": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
                "target": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
                "topics": {"include": [COPY]},
            },
        }
    )
    scene = watched.scene
    back = FlowContext(reverse, scene.driver, clients=scene.kafka.clients(), clock=scene.clock)
    scene.clock.advance(5)
    back.progress.start()
    progress = Progress("", 0, -1, "", 10, epoch=1, owner=owner)
    back.progress.write({ProgressKey(partition=0, **key): progress})
    watched.write(0, 7)
    watched.unit.run_once()
    back.close()
    found = find_condition(watched.unit.status.conditions, STILL)
    assert found is not None
    if ends:
        assert (found.status, found.reason) == (ConditionStatus.FALSE, Reason.REVERSE_FLOW_RUNS)
        assert watched.offsets() == {}
    else:
        assert found.status is ConditionStatus.TRUE
        assert watched.offsets() == {0: 7}
