"""A record lane that copies in transactions, on clusters in memory."""

from collections.abc import Mapping
from threading import Event
from typing import cast

import pytest
from support.fake_kafka import MARKER, FakeKafka, FakeTransactionalProducer

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import KafkaError
from headrace.movers import Copied, CopyFrom, Reached, RecordMover, RecordRefused
from headrace.movers.transactional_record import TransactionalRecordLane
from headrace.movers.transactions import CUT_WITHIN_S, VISIBLE_WITHIN_S
from headrace.replication import Writer

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
COPY0, PROGRESS = TopicPartition("east.orders", 0), TopicPartition("progress", 0)
WRITER = Writer("tx", 12, 3)
BEGINNING = CopyFrom(0, -1, writer=WRITER)
STORED = {PROGRESS: [(b"orders-0", b"2")]}
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "no answer", False, True)


class Scene:
    def __init__(self) -> None:
        self.kafka = FakeKafka("east", "west")
        self.source, self.target = self.kafka.clusters["east"], self.kafka.clusters["west"]
        self.source.create_topic("orders", 2)
        self.target.create_topic("east.orders", 2)
        self.target.create_topic("progress", 1)
        east, west = (
            ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers="127.0.0.1:1"))
            for alias in ("east", "west")
        )
        self.mover = RecordMover(
            east,
            west,
            lambda topic: f"east.{topic}",
            self.kafka.clients(),
            self.kafka.clock,
            exactly_once=True,
        )
        lane = self.mover.lane(TaskId("f", "SourceTask", 0), lambda message: None, Copied())
        assert isinstance(lane, TransactionalRecordLane)
        self.lane = lane

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        assert self.mover.fencing is not None
        self.mover.fencing.prepare("tx")
        self.lane.open(positions)

    @property
    def producer(self) -> FakeTransactionalProducer:
        return cast("FakeTransactionalProducer", self.target.producer)

    def turns(self) -> None:
        for _ in range(5):
            self.lane.run_once()

    def cut(self) -> Mapping[TopicPartition, Reached]:
        reached = self.lane.cut()
        assert reached is not None
        return reached

    def commit(self) -> HeadraceError | None:
        outcomes: list[HeadraceError | None] = []
        ended = Event()

        def committed(error: HeadraceError | None) -> None:
            outcomes.append(error)
            ended.set()

        self.lane.commit(STORED, committed)
        assert ended.wait(10)
        return outcomes[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_acknowledged_is_copied_once_it_is_committed_with_progress(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.open({P0: BEGINNING, P1: BEGINNING})
    scene.turns()
    before = scene.lane.state()[P0]
    assert (before.acknowledged, before.in_flight, before.lag_records) == (0, 2, 2)
    assert scene.lane.take_runs() == {}
    assert scene.lane.uncommitted
    assert scene.cut()[P0].acknowledged == 2
    scene.source.append("orders", b"c")
    scene.turns()
    assert scene.target.records("east.orders") == [b"a", b"b"], "nothing more is sent meanwhile"
    assert scene.commit() is None
    assert scene.target.records("progress") == [b"2"]
    after = scene.lane.state()[P0]
    assert (after.acknowledged, after.target_offset, after.in_flight) == (2, 2, 0)
    assert [run.records for run in scene.lane.take_runs()[P0]] == [2]
    scene.turns()
    scene.cut()
    assert scene.commit() is None
    last = scene.lane.state()[P0]
    assert (last.acknowledged, last.target_offset) == (3, 4), "behind the marker"
    assert last.unexpected_offsets == 0
    assert scene.target.logs[COPY0].stable_end == 5
    assert not scene.lane.uncommitted


def test_a_lane_with_nothing_to_store_goes_on(scene: Scene) -> None:
    scene.open({P0: BEGINNING})
    scene.cut()
    scene.lane.go_on()
    scene.source.append("orders", b"a")
    scene.turns()
    assert scene.target.records("east.orders") == [b"a"]


def test_a_refused_record_dooms_its_transaction(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"bad")
    scene.source.append("orders", b"other", partition=1)
    code = KafkaError.INVALID_TIMESTAMP
    scene.target.refuses = lambda at, record: code if record.value == b"bad" else 0
    scene.open({P0: BEGINNING, P1: BEGINNING})
    scene.turns()
    (problem,) = scene.lane.problems()
    assert isinstance(problem.error, RecordRefused)
    with pytest.raises(Retriable, match="refused records of a transaction: it is aborted"):
        scene.lane.cut()
    scene.lane.settle(5)
    assert {one.acknowledged for one in scene.lane.state().values()} == {0}
    scene.lane.close()
    assert scene.target.records("east.orders", 1) == [], "aborted: no reader waits for it"


def test_a_suspect_waits_until_all_before_it_is_committed(scene: Scene) -> None:
    """Or the abort that its refusal brings would have it refused again and again."""
    scene.source.append("orders", b"a", b"bad", b"c")
    scene.open({P0: BEGINNING._replace(suspects=range(1, 2))})
    scene.turns()
    assert scene.target.records("east.orders") == [b"a"]
    scene.cut()
    assert scene.commit() is None
    code = KafkaError.INVALID_TIMESTAMP
    scene.target.refuses = lambda at, record: code if record.value == b"bad" else 0
    scene.turns()
    (problem,) = scene.lane.problems()
    assert isinstance(problem.error, RecordRefused)
    assert problem.error.record is not None
    assert problem.error.record.offset == scene.lane.state()[P0].acknowledged == 1


def test_a_commit_without_an_answer_is_asked_for_again(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.open({P0: BEGINNING})
    scene.turns()
    scene.producer.commits += [TIMED_OUT, TIMED_OUT]
    scene.cut()
    assert scene.commit() is None
    assert scene.lane.state()[P0].acknowledged == 1


def test_an_outcome_that_is_not_known_is_never_guessed(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.open({P0: BEGINNING})
    scene.turns()
    scene.producer.commits.append(KafkaError(KafkaError._FATAL, "gone", True))
    scene.cut()
    assert isinstance(scene.commit(), Retriable)
    assert scene.lane.state()[P0].acknowledged == 0
    with pytest.raises(Retriable):
        scene.lane.run_once()
    with pytest.raises(Retriable):
        scene.lane.cut()
    producer = scene.producer
    scene.lane.close()
    assert producer.open, "who takes over ends it: it may be committed"


def test_a_marker_that_was_lost_is_for_a_take_over_to_make_good(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.open({P0: BEGINNING})
    scene.turns()
    scene.target.loses_markers.add(COPY0)
    known_ends, clock = scene.target.known_ends, scene.kafka.clock

    def slow(*asked: object) -> dict[TopicPartition, int]:
        clock.advance(VISIBLE_WITHIN_S)
        return known_ends(*asked)  # type: ignore[arg-type]

    scene.target.known_ends = slow  # type: ignore[method-assign, assignment]
    scene.cut()
    assert scene.commit() is None, "it is committed"
    assert scene.lane.state()[P0].acknowledged == 1
    with pytest.raises(Retriable, match="below offset 1, up to which all is committed"):
        scene.lane.run_once()
    scene.lane.close()
    assert scene.target.logs[COPY0].entries[0] is not MARKER, "not aborted"


def test_who_was_fenced_says_so_and_another_lane_may_do_better(scene: Scene) -> None:
    scene.open({P0: BEGINNING})
    own = scene.producer
    assert scene.mover.fencing is not None
    scene.mover.fencing.prepare("tx")
    assert own.fenced
    scene.source.append("orders", b"a")
    with pytest.raises(Retriable, match="ended by another owner, or took too long"):
        scene.turns()
    assert scene.lane.problems()[0].error is not None
    assert scene.target.records("east.orders") == []


def test_a_commit_of_who_was_fenced_counts_for_nothing(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.open({P0: BEGINNING})
    scene.turns()
    scene.producer.fenced = True
    scene.cut()
    error = scene.commit()
    assert isinstance(error, Retriable)
    assert "ended by another owner" in str(error)


def test_what_is_open_is_aborted_at_the_end(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.open({P0: BEGINNING})
    scene.turns()
    scene.lane.close()
    log = scene.target.logs[COPY0]
    assert (log.entries, log.stable_end) == ([MARKER, MARKER], 2)


def test_a_partition_that_holds_up_the_others_has_the_transaction_given_up(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.target.holds_back = lambda at: True
    scene.open({P0: BEGINNING})
    scene.turns()
    assert scene.lane.cut() is None
    scene.kafka.clock.advance(CUT_WITHIN_S + 1)
    with pytest.raises(Retriable, match="did not acknowledge all records of a transaction within"):
        scene.lane.cut()


def test_what_was_dropped_is_found_out_before_a_commit(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.target.holds_back = lambda at: True
    scene.open({P0: BEGINNING})
    scene.turns()
    scene.producer.purge()
    with pytest.raises(Retriable, match="records were dropped, a transaction failed"):
        scene.turns()


def test_a_producer_serves_one_lane(scene: Scene) -> None:
    scene.open({P0: BEGINNING})
    with pytest.raises(Fatal, match="internal error"):
        scene.lane.open({P1: BEGINNING})
    with pytest.raises(Fatal, match="without a transactional id"):
        scene.lane.open({P1: CopyFrom(0, -1)})


def test_a_lane_without_partitions_has_no_producer(scene: Scene) -> None:
    assert scene.lane.run_once() == 0
    assert scene.lane.in_flight == 0
    scene.lane.settle(1)
    scene.lane.close()
    assert scene.lane.closed.is_set()
