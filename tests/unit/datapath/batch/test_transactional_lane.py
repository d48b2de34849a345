"""A lane that copies in transactions, called as a task calls it."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.fake_broker import Serve
from support.fake_kafka import MARKER, FakeClock, FakeCluster
from support.patience import WITHIN_S
from support.preserving_target import END_TXN, PreservingTarget
from support.wire_kafka import TOPIC, Refusal, WireCluster, wire_cluster

from headrace.api import TopicPartition
from headrace.assign import TaskId
from headrace.datapath import (
    BatchMover,
    CopiedCounts,
    CopyFrom,
    Reached,
    commit,
    mover,
    transactions,
)
from headrace.errors import Fatal, HeadraceError, Retriable

ZERO, ONE, PROGRESS = (TopicPartition(TOPIC, number) for number in range(3))
STORED = {PROGRESS: [(b"orders-0", b"2")]}


class Scene:
    """A lane, and its target, whose last partition has the progress."""

    def __init__(self, source: WireCluster, target: PreservingTarget) -> None:
        self.source, self.target = source, target
        self.mover = BatchMover(
            source.access, target.access, lambda topic: topic, exactly_once=True
        )
        self.start = CopyFrom(0, -1, writer=self.mover.fencing.identify("tx"))
        task = TaskId("orders", "SourceTask", 0)
        self.lane = self.mover.lane(task, lambda _: None, CopiedCounts())
        assert self.lane.transactions is not None
        self.transactions = self.lane.transactions

    def until(self, condition: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not condition():
            self.lane.run_once()
            assert time.monotonic() < deadline_s, (self.lane.state(), self.lane.problems())
            time.sleep(0.005)

    def copy(self, *values: bytes) -> None:
        """Append records to the source, and wait until they are on the target."""
        self.source.append(*values)
        wanted = self.source.logs[0].values
        self.until(lambda: [one for one in self.copies if one is not MARKER] == wanted)

    @property
    def copies(self) -> list[Any]:
        entries = self.target.logs[0].entries
        return [one if one is MARKER else one.value for one in entries]

    @property
    def ends(self) -> list[bool]:
        """Whether each transaction was to be committed, in the order of the requests."""
        return [one.committed for one in self.target.brokers[1].requests(END_TXN)]

    def cut(self) -> Mapping[TopicPartition, Reached]:
        found: list[Mapping[TopicPartition, Reached]] = []

        def is_cut() -> bool:
            if (reached := self.transactions.cut()) is not None:
                found.append(reached)
            return bool(found)

        self.until(is_cut)
        return found[0]

    def commit(self) -> HeadraceError | None:
        outcomes: list[HeadraceError | None] = []
        ended = threading.Event()

        def committed(error: HeadraceError | None) -> None:
            outcomes.append(error)
            ended.set()

        self.transactions.commit(STORED, committed)
        assert ended.wait(WITHIN_S)
        return outcomes[0]


@pytest.fixture
def scene(serve: Serve) -> Iterator[Scene]:
    cluster = FakeCluster("west", FakeClock())
    cluster.create_topic(TOPIC, 3)
    target = PreservingTarget(serve, cluster, TOPIC, 3)
    target.commits = True
    scene = Scene(wire_cluster(serve, "east", 2), target)
    yield scene
    scene.lane.close()


def test_records_count_as_copied_once_they_are_committed_with_progress(scene: Scene) -> None:
    scene.lane.open({ZERO: scene.start, ONE: scene.start})
    scene.copy(b"a", b"b")
    before = scene.lane.state()[ZERO]
    assert (before.acknowledged, before.in_flight, before.lag_records) == (0, 2, 2)
    assert scene.lane.take_runs() == {}
    assert scene.transactions.uncommitted
    assert scene.cut()[ZERO].acknowledged == 2
    scene.source.append(b"c")
    for _ in range(20):
        scene.lane.run_once()
        time.sleep(0.005)
    assert scene.copies == [b"a", b"b"], "nothing is sent until the commit"
    assert scene.commit() is None
    assert [one.value for one in scene.target.logs[2].entries if one is not MARKER] == [b"2"]
    after = scene.lane.state()[ZERO]
    assert (after.acknowledged, after.target_offset) == (2, 2)
    assert [run.records for run in scene.lane.take_runs()[ZERO]] == [2]

    scene.until(lambda: scene.copies == [b"a", b"b", MARKER, b"c"])
    assert scene.cut()[ZERO].acknowledged == 3
    assert scene.commit() is None
    last = scene.lane.state()[ZERO]
    assert (last.acknowledged, last.target_offset, last.unexpected_offsets) == (3, 4, 0)
    assert not scene.transactions.uncommitted
    assert scene.ends == [True, True]


def test_a_lane_with_nothing_to_store_continues(scene: Scene) -> None:
    scene.lane.open({ZERO: scene.start})
    scene.cut()
    scene.transactions.go_on()
    scene.copy(b"a")


def test_a_slow_partition_fails_the_transaction(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "CUT_TIMEOUT_S", 0.2)
    scene.target.unanswered = {1}
    scene.lane.open({ZERO: scene.start, ONE: scene.start})
    scene.source.append(b"x", partition=1)
    scene.until(lambda: any(1 in sent for sent in scene.target.sent))
    with pytest.raises(Retriable, match="did not acknowledge all records of a transaction"):
        scene.cut()


def test_an_open_transaction_is_aborted_when_the_lane_is_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover, "ABORT_S", WITHIN_S)
    scene.lane.open({ZERO: scene.start})
    scene.copy(b"a")
    scene.lane.close()
    assert scene.ends == [False]


@pytest.mark.parametrize("lost", ["answer", "marker"])
def test_a_commit_with_an_unknown_outcome_is_not_aborted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(transactions, "ANSWERED_TIMEOUT_S", 0.2)
    monkeypatch.setattr(transactions, "VISIBLE_TIMEOUT_S", 0.2)
    scene.lane.open({ZERO: scene.start})
    scene.copy(b"a")
    scene.cut()
    scene.target.end_is_lost = lambda: lost == "answer"
    scene.target.lagging = [0] * 1000 if lost == "marker" else []
    assert isinstance(scene.commit(), Retriable if lost == "answer" else type(None))
    why = "connection" if lost == "answer" else "its marker was lost"
    with pytest.raises(Retriable, match=why):
        scene.until(lambda: False)
    with pytest.raises(Retriable, match=why):
        scene.transactions.cut()
    scene.lane.close()
    assert set(scene.ends) == {True}


@pytest.mark.parametrize("where", ["coordinator", "leader"])
def test_a_lane_whose_producer_is_fenced_ends_with_that_reason(scene: Scene, where: str) -> None:
    scene.lane.open({ZERO: scene.start})
    if where == "coordinator":
        scene.mover.fencing.identify("tx")
    else:
        scene.target.fault = lambda *_: Refusal(ErrorCode.invalid_producer_epoch)
    with pytest.raises(Retriable, match="ended by another owner, or took too long"):
        scene.copy(b"a")


def test_a_partition_without_a_transactional_id_is_refused(scene: Scene) -> None:
    with pytest.raises(Fatal, match="orders-0 would be copied without a transactional id"):
        scene.lane.open({ZERO: CopyFrom(0, -1)})


def test_a_lane_without_partitions_requests_nothing(scene: Scene) -> None:
    seen = len(scene.target.brokers[1].seen)
    assert scene.lane.run_once() == 0
    scene.lane.settle(5)
    scene.lane.close()
    assert not scene.ends
    assert len(scene.target.brokers[1].seen) == seen
