"""Holes of several partitions, which share transactions."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_broker import serving
from support.fake_kafka import MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord
from support.patience import WITHIN_S
from support.preserving_target import PreservingTarget

from headrace.api import TopicPartition
from headrace.datapath.markers import new_epoch
from headrace.datapath.preserved import holes
from headrace.datapath.preserved.holes import Holes
from headrace.datapath.preserved.owner import Closer, identified
from headrace.datapath.preserved.plan import Hole
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import ClusterClient, EventLoop, start

ATS = [TopicPartition("orders", number) for number in range(3)]


class Filling:
    """Owner, with its target."""

    def __init__(self, serve: Any, *, with_records: bool) -> None:
        cluster = FakeCluster("west", FakeClock())
        cluster.logs = {at: FakeLog() for at in ATS}
        self.target = PreservingTarget(serve, cluster, "orders", len(ATS))
        self._loop = EventLoop()
        self._cluster = ClusterClient(self._loop, self.target.access)
        self.outcomes: dict[TopicPartition, HeadraceError | None] = {}
        owner = self._loop.wait(start(identified(self._cluster, "headrace-task")), WITHIN_S)
        self.holes = Holes(
            self._cluster, owner, self.outcomes.__setitem__, with_records=with_records
        )

    def closer(self, name: str) -> Closer:
        """Return a closer of data with this transactional id."""
        raised = start(new_epoch(self._cluster, name))
        return Closer(name, self._loop.wait(raised, WITHIN_S))

    def fill(self, *sizes: int) -> None:
        """Fill holes of each partition, and run until the outcome of all is known."""
        for at, size in zip(ATS, sizes, strict=True):
            self.holes.fill(at, Hole(0, size))
        self.run()

    def run(self) -> None:
        deadline_s = self._loop.now_s() + WITHIN_S
        while len(self.outcomes) < len(ATS):
            assert self._loop.now_s() < deadline_s, self.outcomes
            self._loop.run_once(0.05)

    def while_ends_are_compared(self, call: Callable[[], None]) -> None:
        """Call a function in the loop, before the next answer about a log's end."""
        called = threading.Event()

        def meanwhile() -> None:
            self._loop.call_from_thread(call)
            self._loop.call_from_thread(called.set)
            assert called.wait(WITHIN_S)

        self.target.meanwhile = meanwhile

    def markers(self) -> list[int]:
        logs = self.target.cluster.logs
        assert all(one is MARKER for at in ATS for one in logs[at].entries)
        return [logs[at].end for at in ATS]

    def close(self) -> None:
        self.holes.close()
        self._cluster.close()
        self._loop.close()


@pytest.fixture(params=[False, True], ids=["markers", "fillers"])
def filling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Filling]:
    monkeypatch.setattr(holes, "BATCH_RECORDS", 4)
    with serving() as serve:
        filling = Filling(serve, with_records=request.param)
        yield filling
        filling.close()


def test_each_partition_gets_as_many_markers_as_it_lacks_offsets(filling: Filling) -> None:
    filling.fill(1, 6, 3)
    assert filling.outcomes == dict.fromkeys(ATS)
    assert filling.markers() == [1, 6, 3]


def test_the_first_marker_is_the_one_that_closes(filling: Filling) -> None:
    closer = filling.closer("headrace-data")
    for at, size in zip(ATS, (1, 6, 3), strict=True):
        filling.holes.fill(at, Hole(0, size), closer if at != ATS[2] else None)
    filling.run()
    assert filling.outcomes == dict.fromkeys(ATS)
    assert filling.markers() == [1, 6, 3]
    data = closer.identity.producer_id, closer.identity.epoch
    closing = [key for key, who in filling.target.markers.items() if who == data]
    assert sorted(closing) == [(ATS[0], 0), (ATS[1], 0)]


@pytest.mark.parametrize("sizes", [(2, 5, 3), (2, 2, 2)])
def test_a_partition_that_is_forbidden_stops_no_other(
    filling: Filling, sizes: tuple[int, int, int]
) -> None:
    filling.target.forbids = {ATS[1]}
    filling.fill(*sizes)
    assert filling.markers() == [sizes[0], 0, sizes[2]]
    assert (filling.outcomes[ATS[0]], filling.outcomes[ATS[2]]) == (None, None)
    error = filling.outcomes[ATS[1]]
    assert isinstance(error, HeadraceError)
    assert not isinstance(error, Retriable)


def test_what_is_stopped_fails_and_may_be_filled_in_part(filling: Filling) -> None:
    filling.target.holds_markers = True
    for at in ATS:
        filling.holes.fill(at, Hole(0, 50))
    filling.holes.stop()
    filling.target.holds_markers = False
    filling.run()
    assert all(isinstance(one, Retriable) for one in filling.outcomes.values())
    assert max(filling.markers()) <= 4, "the round that was begun"


def test_a_hole_that_comes_while_ends_are_compared_is_compared_itself(filling: Filling) -> None:
    """An earlier owner's batch was appended to its partition during the take-over."""
    closer = filling.closer("headrace-data")
    filling.target.cluster.write(ATS[1], FakeRecord(None, b"0", 0))
    filling.while_ends_are_compared(lambda: filling.holes.fill(ATS[1], Hole(0, 1), closer))
    for at in (ATS[0], ATS[2]):
        filling.holes.fill(at, Hole(0, 1), closer)
    filling.run()
    assert "ended at 0, and ends at 1 now" in str(filling.outcomes[ATS[1]])
    assert [filling.outcomes[at] for at in (ATS[0], ATS[2])] == [None, None]
    assert len(filling.target.cluster.logs[ATS[1]].entries) == 1
