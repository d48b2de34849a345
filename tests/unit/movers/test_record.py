"""What a record lane does; clusters are in memory, everything above the clients is real."""

import time

import pytest
from support.fake_kafka import FakeKafka, FakeMessage, FakeRecord
from support.threads import CLIENT, threads_named

from headrace.api import ClusterAccess, ClusterSpec, RecordFilter
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.errors import Fatal, Retriable
from headrace.kafka import KafkaError
from headrace.movers import Copied, CopyFrom, OffsetGone, RecordMover, RecordRefused, sending
from headrace.movers.clients import Clients
from headrace.replication import RecordChanges

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BEGINNING = CopyFrom(0, -1)


class Scene:
    def __init__(self, changes: RecordChanges | None = None) -> None:
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
            east,
            west,
            lambda topic: f"east.{topic}",
            self.kafka.clients(),
            self.kafka.clock,
            changes=changes,
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
        sending.log, "warning", lambda _, *, partition, **__: logged.append(partition)
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
    assert (problem.error.offset, problem.error.diverged_at) == (0, None)
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


def test_suspects_are_sent_one_at_a_time_and_what_follows_together(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b", b"c", b"d", b"e")
    scene.target.holds_back = lambda at: True
    scene.lane.open({P0: CopyFrom(0, -1, suspects=range(1, 3))})
    sent: list[list[bytes | None]] = []
    for _ in range(4):
        scene.turns()
        queue = list(scene.target.producer.queue)
        sent.append([produced.record.value for produced in queue])
        assert scene.lane.state()[P0].acknowledged == sum(map(len, sent[:-1]))
        for produced in queue:
            scene.target.producer.acknowledge(produced)
    scene.source.append("orders", b"f")
    scene.target.holds_back = lambda at: False
    scene.turns()
    assert sent == [[b"a"], [b"b"], [b"c"], [b"d", b"e"]]
    assert scene.copies() == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("way", ["leave", "pause"])
def test_a_partition_that_comes_back_loses_nothing_that_was_held_back(
    scene: Scene, way: str
) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.target.holds_back = lambda at: True
    scene.lane.open({P0: CopyFrom(0, -1, suspects=range(3))})
    scene.turns()
    if way == "leave":
        scene.lane.leave({P0})
        scene.turns()
        scene.lane.keep({P0})
    else:
        scene.lane.pause({P0})
        scene.turns()
        scene.lane.pause(set())
    scene.target.holds_back = lambda at: False
    for _ in range(3):
        scene.turns()
    assert scene.copies() == [b"a", b"b", b"c"]
    assert scene.lane.state()[P0].acknowledged == 3


def test_a_record_that_is_refused_alone_is_told_with_its_bytes(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"bad", b"b")
    scene.target.refuses = lambda at, record: (
        KafkaError.INVALID_RECORD if record.value == b"bad" else 0
    )
    scene.lane.open({P0: BEGINNING})
    scene.turns()
    (problem,) = scene.lane.problems()
    assert isinstance(problem.error, RecordRefused)
    assert (problem.error.offsets, problem.error.record) == (range(3), None)
    again = Scene()
    again.source.append("orders", b"a", b"bad", b"b")
    again.target.refuses = scene.target.refuses
    again.lane.open({P0: CopyFrom(0, -1, suspects=range(3))})
    again.turns()
    (problem,) = again.lane.problems()
    assert isinstance(problem.error, RecordRefused)
    assert problem.error.record is not None
    assert (problem.error.record.offset, problem.error.record.value) == (1, b"bad")
    assert again.copies() == [b"a"]


@pytest.mark.parametrize(
    "code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED]
)
def test_a_damaged_batch_of_the_source_names_partition_and_offset(scene: Scene, code: int) -> None:
    scene.source.append("orders", b"a")
    scene.lane.open({P0: BEGINNING})
    scene.turns()
    scene.source.consumers[0].errors.append((P0, KafkaError(code)))
    scene.source.append("orders", b"behind it")
    scene.turns()
    assert scene.copies() == [b"a"]
    (problem,) = scene.lane.problems()
    assert isinstance(problem.error, Fatal)
    assert "could not read orders-0 offset 1 of east" in str(problem.error)
    assert "the log is damaged there" in str(problem.error)


def test_a_producer_that_stops_between_two_records_is_asked_why(scene: Scene) -> None:
    scene.target.holds_back = lambda at: True
    scene.source.append("orders", b"a")
    scene.lane.open({P0: BEGINNING})
    scene.turns()
    producer = scene.target.producer
    consume = scene.source.consumers[0].consume

    def stop_then_consume(number: int, timeout: float) -> list[FakeMessage]:
        if producer.queue:
            producer.raises_when_stopped = True
            producer.refuse(producer.queue[0], KafkaError.INVALID_RECORD)
        return consume(number, timeout)

    scene.source.consumers[0].consume = stop_then_consume  # type: ignore[method-assign]
    scene.source.append("orders", b"b", b"c")
    scene.turns()
    (problem,) = scene.lane.problems()
    assert isinstance(problem.error, RecordRefused)
    assert scene.lane.state()[P0].acknowledged == 0


def test_a_closed_lane_frees_its_clients_though_something_refers_to_it() -> None:
    """Real clients, of brokers that are away; an error that is kept refers to its frames."""
    east, west = (
        ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers="127.0.0.1:1"))
        for alias in ("east", "west")
    )
    before = threads_named(CLIENT)
    mover = RecordMover(east, west, lambda topic: f"east.{topic}", Clients(), time)
    lane = mover.lane(TaskId("f", "SourceTask", 0), lambda message: None, Copied())
    while len(ours := threads_named(CLIENT) - before) < 2:
        time.sleep(0.01)  # they take their name when they run
    lane.close()
    assert lane.closed.is_set()
    assert not threads_named(CLIENT) & ours


def test_what_is_filtered_counts_as_done_and_leaves_no_offset_on_the_target() -> None:
    wanted = {"headers": {"exclude": [{"name": "test"}]}}
    scene = Scene(RecordChanges(RecordFilter.model_validate(wanted), None))
    for n, value in enumerate((b"a", b"-", b"b", b"-", b"-")):
        marked = [("test", b"1")] if value == b"-" else None
        scene.source.logs[P0].leader_epoch = n
        scene.source.write(P0, FakeRecord(None, value, 1_000, marked))
    scene.lane.open({P0: BEGINNING})
    scene.turns()
    assert scene.copies() == [b"a", b"b"]
    reached = scene.lane.state()[P0]
    assert (reached.acknowledged, reached.target_offset, reached.in_flight) == (5, 2, 0)
    assert reached.leader_epoch == 4, "of the last record read, or it looks like one truncated"
    runs = scene.lane.take_runs()[P0]
    assert [one[:3] for one in runs] == [(0, 0, 1), (2, 1, 1)]
    assert (scene.copied.records, scene.copied.filtered) == (2, 3)
