"""When a task commits a transaction, and the outcome of the transaction."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from support.source_tasks import P0, Scene

from headrace.api import TopicPartition
from headrace.connect.source.task_progress import STORE_TIMEOUT_S, TaskTransactions
from headrace.datapath import Reached
from headrace.errors import HeadraceError, Retriable
from headrace.replication import ContiguousRange, Progress

HERE = Reached(5, 5, 0, 0, 5, None, 0)
Written = Mapping[TopicPartition, Sequence[tuple[bytes, bytes]]]


class FakeLane:
    """Lane that is cut once ``reached`` has the offsets."""

    def __init__(self) -> None:
        self.uncommitted = True
        self.reached: dict[TopicPartition, Reached] | None = None
        self.committed: list[Written] = []
        self.went_on = 0
        self.answer: Callable[[HeadraceError | None], None] = lambda _: None

    def cut(self) -> dict[TopicPartition, Reached] | None:
        return self.reached

    def commit(self, progress: Written, answer: Callable[[HeadraceError | None], None]) -> None:
        self.committed.append(progress)
        self.answer = answer

    def cut_runs(self) -> Mapping[TopicPartition, Sequence[ContiguousRange]]:
        return {}

    def go_on(self) -> None:
        self.went_on += 1


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(P0)
    scene.start()
    scene.context.exactly_once = True
    yield scene
    scene.close()


def test_a_transaction_is_committed_with_progress_once_it_is_cut(scene: Scene) -> None:
    transactions, lane = TaskTransactions(scene.context), FakeLane()
    stored = {scene.context.progress_key(P0): scene.stored(P0)}
    assert transactions.commit(lane, lambda _: stored) is None
    assert (transactions.cutting, lane.committed) == (True, [])
    lane.reached = {P0: HERE}
    storing = transactions.commit(lane, lambda _: stored)
    assert storing is not None
    assert not transactions.cutting
    [written] = lane.committed
    key = scene.context.progress_key(P0)
    [(at, [(name, value)])] = written.items()
    assert (at, name) == (scene.context.progress.partition_of(key), key.encode())
    assert Progress.decode(value) == scene.stored(P0).of_transaction()
    assert not storing.done()
    lane.answer(None)
    assert storing.done()


def test_an_outcome_that_is_not_known_is_said(scene: Scene) -> None:
    transactions, lane = TaskTransactions(scene.context), FakeLane()
    lane.reached = {P0: HERE}
    key = scene.context.progress_key(P0)
    storing = transactions.commit(lane, lambda _: {key: scene.stored(P0)})
    assert storing is not None
    lane.answer(Retriable("no coordinator"))
    with pytest.raises(Retriable, match="no coordinator"):
        storing.done()
    late = transactions.commit(lane, lambda _: {key: scene.stored(P0)})
    assert late is not None
    scene.clock.advance(STORE_TIMEOUT_S + 1)
    with pytest.raises(Retriable, match="a transaction on west: no answer within 60 s"):
        late.done()


def test_a_lane_with_nothing_to_store_goes_on(scene: Scene) -> None:
    transactions, lane = TaskTransactions(scene.context), FakeLane()
    lane.reached = {}
    assert transactions.commit(lane, lambda _: {}) is None
    assert (lane.went_on, lane.committed, transactions.cutting) == (1, [], False)


def test_the_interval_counts_from_cut_to_cut(scene: Scene) -> None:
    scene.change_spec(delivery={"mode": "ExactlyOnce", "commitIntervalMs": 300})
    transactions, lane = TaskTransactions(scene.context), FakeLane()
    assert transactions.due
    transactions.commit(lane, lambda _: {})
    scene.clock.advance(0.2)
    lane.reached = {}
    transactions.commit(lane, lambda _: {})
    assert not transactions.due
    scene.clock.advance(0.11)
    assert transactions.due
    scene.context.exactly_once = False
    assert not transactions.due
