"""What a record lane does; clusters are in memory, everything above the clients is real."""

import pytest
from support.fake_kafka import FakeKafka, FakeRecord

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.errors import Retriable
from headrace.kafka import KafkaError
from headrace.movers import Copied, CopyFrom, OffsetGone, RecordMover
from headrace.movers import record as record_mover

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BEGINNING = CopyFrom(0, -1)


class Scene:
    def __init__(self) -> None:
        self.copied = Copied()
        self.kafka = FakeKafka("east", "west")
        self.source, self.target = self.kafka.clusters["east"], self.kafka.clusters["west"]
        self.source.create_topic("orders", 2)
        self.target.create_topic("east.orders", 2)
        east, west = (
            ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers="127.0.0.1:1"))
            for alias in ("east", "west")
        )
        mover = RecordMover(
            east, west, lambda topic: f"east.{topic}", self.kafka.clients(), self.kafka.clock
        )
        self.lane = mover.lane(TaskId("f", "SourceTask", 0), lambda message: None, self.copied)

    def copies(self, partition: int = 0) -> list[bytes | None]:
        return self.target.records("east.orders", partition)

    def turns(self) -> None:
        for _ in range(5):
            self.lane.run_once()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_record_stays_as_it_is(scene: Scene) -> None:
    record = FakeRecord(None, b"", 1_234, [("trace", b"1"), ("trace", None)])
    tombstone = FakeRecord(b"key", None, 1_235)
    scene.source.write(P1, record)
    scene.source.write(P1, tombstone)
    scene.lane.open({P1: BEGINNING})
    scene.turns()
    assert scene.target.logs[P1._replace(topic="east.orders")].entries == [record, tombstone]


def test_records_without_a_timestamp_get_the_time_of_copying_and_are_counted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        record_mover.log, "warning", lambda _, *, partition, **__: logged.append(partition)
    )
    for at, timestamp_ms in ((P0, 0), (P0, -1), (P0, 1), (P1, -1)):
        scene.source.write(at, FakeRecord(None, b"", timestamp_ms))
    scene.lane.open({P0: BEGINNING, P1: BEGINNING})
    scene.turns()
    now_ms = int(scene.kafka.clock.time() * 1000)
    entries = scene.target.logs[P0._replace(topic="east.orders")].entries
    assert [entry and entry.timestamp_ms for entry in entries] == [now_ms, now_ms, 1]
    assert scene.copied.restamped == 3
    assert logged == ["orders-0", "orders-1"]


def test_positions_go_in_and_acknowledged_positions_come_out(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.lane.open({P0: CopyFrom(1, 0), P1: BEGINNING})
    scene.turns()
    assert scene.copies() == [b"b", b"c"]
    state = scene.lane.state()
    assert (state[P0].acknowledged, state[P0].target_offset, state[P0].lag_records) == (3, 2, 0)
    assert (state[P1].acknowledged, state[P1].target_offset) == (0, None)


def test_lag_is_what_is_not_acknowledged(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.target.holds_back = lambda at: True
    scene.lane.open({P0: BEGINNING})
    scene.turns()
    reached = scene.lane.state()[P0]
    assert (reached.lag_records, reached.in_flight) == (2, 2)
    assert reached.lag_s(now_s=11.0) == 10.0  # the records are of second 1


def test_a_problem_is_its_partition_s_only(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.source.append("orders", b"b", partition=1)
    scene.lane.open({P0: BEGINNING, P1: BEGINNING})
    gone = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    scene.source.consumers[0].errors.append((P0, gone))
    scene.lane.run_once()
    scene.lane.poll()
    (problem,) = scene.lane.problems()
    assert problem.at == P0
    assert isinstance(problem.error, OffsetGone)
    assert (problem.error.offset, problem.error.truncated) == (0, False)
    assert (scene.copies(0), scene.copies(1)) == ([], [b"b"])
    scene.lane.leave({P0})
    scene.lane.forget({P0})
    assert scene.lane.problems() == []


def test_a_client_that_retries_by_itself_is_no_problem(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.lane.open({P0: BEGINNING})
    scene.source.consumers[0].errors.append((P0, KafkaError(KafkaError._TRANSPORT)))
    scene.turns()
    assert (scene.lane.problems(), scene.copies()) == ([], [b"a"])


def test_partitions_that_are_left_send_nothing_more_and_are_acknowledged(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.target.holds_back = lambda at: True
    scene.lane.open({P0: BEGINNING})
    scene.lane.run_once()
    scene.lane.leave({P0})
    scene.source.append("orders", b"b")
    scene.target.holds_back = lambda at: False
    scene.turns()
    assert (scene.copies(), scene.lane.state()[P0].acknowledged) == ([b"a"], 1)


def test_a_lane_is_not_settled_while_the_target_does_not_answer(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.target.holds_back = lambda at: True
    scene.lane.open({P0: BEGINNING})
    scene.lane.run_once()
    sent, _ = scene.target.producer.queue
    scene.target.producer.append(sent)
    with pytest.raises(Retriable, match="did not acknowledge 1 records that were on their way"):
        scene.lane.settle(2.5)
    scene.target.producer.acknowledge(sent)
    scene.lane.settle(2.5)
    assert (scene.lane.state()[P0].acknowledged, scene.lane.in_flight) == (1, 0)
    assert scene.copies() == [b"a"]
