"""Offset from which a copy with equal offsets resumes, and cases in which it is rejected."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from support.fake_broker import serving
from support.fake_kafka import MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord
from support.patience import WITHIN_S
from support.preserving_target import PreservingTarget
from support.wire_kafka import UNANSWERED

from headrace.api import TopicPartition
from headrace.datapath.lane import Filling
from headrace.datapath.preserved import holes, takeover
from headrace.datapath.preserved.holes import WrongOffset
from headrace.datapath.preserved.owner import End, data_producer, identified
from headrace.datapath.preserved.takeover import Pair, Starts
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import ClusterClient, EventLoop, start

AT = TopicPartition("orders", 0)
Cells = str
"""Value of the record at each offset, or ``-`` for a marker."""


class Clusters:
    """Clusters with one partition each, and their clients."""

    def __init__(self, serve: Any) -> None:
        self._serve = serve
        self._loop = EventLoop()
        self._open: list[ClusterClient] = []
        self.pad_s, self.oldest_ms = inf, 0
        self.target: PreservingTarget
        self.same_owner: Callable[[], End | HeadraceError]
        """Repeats the start with the last owner."""

    def start(self, source: Cells, target: Cells, *, source_start: int = 0) -> End | HeadraceError:
        """Return the start of a new owner."""
        self.fill(source, target, source_start=source_start)
        return self.once_more()

    def fill(self, source: Cells, target: Cells, *, source_start: int = 0) -> None:
        """Create the clusters with these logs."""
        self.east = self._cluster("east", source, source_start)
        self.target = self._cluster("west", target, 0)
        self.target.oldest_ms = self.oldest_ms

    def once_more(self) -> End | HeadraceError:
        """Return the start of the next owner."""
        source, west = (ClusterClient(self._loop, one.access) for one in (self.east, self.target))
        self._open += [source, west]
        producer = self._wait(data_producer(west, "headrace-flow"))
        owner = self._wait(identified(west, "headrace-task"))
        pair = Pair(AT, AT, producer)
        starts = Starts(source, west, owner, pad_s=self.pad_s)
        self.same_owner = lambda: starts.of([pair])[pair]
        return self.same_owner()

    @property
    def log(self) -> FakeLog:
        return self.target.cluster.logs[AT]

    def _cluster(self, name: str, cells: Cells, first: int) -> PreservingTarget:
        cluster = FakeCluster(name, FakeClock())
        entries = [
            MARKER if cell == "-" else FakeRecord(None, cell.encode(), 1_000) for cell in cells
        ]
        cluster.logs = {AT: FakeLog(first, entries)}
        return PreservingTarget(self._serve, cluster, AT.topic, 1)

    def _wait(self, coroutine: Any) -> Any:
        return self._loop.wait(start(coroutine), WITHIN_S)

    def close(self) -> None:
        for cluster in self._open:
            cluster.close()
        self._loop.close()


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with serving() as serve:
        clusters = Clusters(serve)
        yield clusters
        clusters.close()


@pytest.mark.parametrize(("source", "target"), [("abc", ""), ("ab-c", "ab-"), ("ab-c-", "ab-c-")])
def test_what_is_equal_so_far_goes_on(clusters: Clusters, source: Cells, target: Cells) -> None:
    end = clusters.start(source, target)
    assert isinstance(end, End)
    assert end.offset == len(target)


@pytest.mark.parametrize(
    ("source", "target", "offset", "how"),
    [
        ("abcd", "abx", 2, "the value of the record differs"),
        ("abcd", "ab-", 2, "the target a marker"),
        ("ab-d", "abc", 2, "the source a marker"),
        ("ab", "abc", 2, "ends at offset 3"),
    ],
)
def test_what_differs_is_refused_with_its_first_offset(
    clusters: Clusters, source: Cells, target: Cells, offset: int, how: str
) -> None:
    error = clusters.start(source, target)
    assert isinstance(error, WrongOffset)
    assert error.offset == offset
    assert how in str(error)
    assert "have it copied again: `headrace flow rebuild`" in str(error)
    assert len(clusters.log.entries) == len(target)  # nothing was written


@pytest.fixture
def filled_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill with five offsets in a batch and eleven in a transaction."""
    monkeypatch.setattr(holes, "BATCH_RECORDS", 5)
    monkeypatch.setattr(takeover, "TRANSACTION_OFFSETS", 11)


@pytest.mark.parametrize("first", [1, 2, 37])
@pytest.mark.usefixtures("filled_bit_by_bit")
def test_an_empty_target_begins_where_the_source_does(clusters: Clusters, first: int) -> None:
    end = clusters.start("abc", "", source_start=first)
    assert isinstance(end, End)
    assert (end.offset, clusters.log.start, clusters.log.end) == (first, first, first)


def test_a_target_that_takes_no_old_records_is_filled_with_new_ones(clusters: Clusters) -> None:
    clusters.oldest_ms = 1_600_000_000_000
    end = clusters.start("abc", "", source_start=20)
    assert isinstance(end, End)
    assert (end.offset, clusters.log.start, clusters.log.end) == (20, 20, 20)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("lost", ["batch", "end"])
@pytest.mark.usefixtures("filled_bit_by_bit")
def test_padding_goes_on_after_a_failure(clusters: Clusters, lost: str, same: bool) -> None:
    batches = iter([None, UNANSWERED] if lost == "batch" else [])
    ends = iter([lost == "end"])
    clusters.start("abc", "")
    clusters.east.cluster.logs[AT].start = 40
    clusters.target.fault = lambda *_: next(batches, None)
    clusters.target.end_is_lost = lambda: next(ends, False)
    error = clusters.once_more()
    assert isinstance(error, Retriable)
    assert 0 < clusters.log.end < 40
    end = clusters.same_owner() if same else clusters.once_more()
    assert isinstance(end, End)
    assert (end.offset, clusters.log.start, clusters.log.end) == (40, 40, 40)


@pytest.mark.usefixtures("filled_bit_by_bit")
def test_padding_that_takes_long_says_how_far_it_is(clusters: Clusters) -> None:
    clusters.pad_s = -1.0
    filled = []
    end = clusters.start("abc", "", source_start=40)
    while isinstance(end, Filling):
        filled.append(end.offset)
        assert f"is filled up to offset 40, where its source begins: {end.offset} so far" in str(
            end
        )
        assert clusters.log.end == end.offset
        end = clusters.same_owner()
    assert filled == [11, 22, 33]
    assert isinstance(end, End)
    assert (end.offset, clusters.log.start, clusters.log.end) == (40, 40, 40)


def test_a_copy_that_retention_overtook_is_refused(clusters: Clusters) -> None:
    error = clusters.start("abc", "xyz", source_start=10)
    assert isinstance(error, Fatal)
    assert not isinstance(error, WrongOffset)
    assert "orders-0 begins at 10: what lies between was deleted before it was copied" in str(error)
    assert clusters.log.end == 3


def test_the_head_that_the_source_deleted_is_deleted(clusters: Clusters) -> None:
    clusters.start("abcdef", "abcd")
    clusters.east.cluster.logs[AT].delete_before(3)
    end = clusters.once_more()
    assert isinstance(end, End)
    assert (end.offset, clusters.log.start) == (4, 3)


def delete_during_comparison(cluster: PreservingTarget, *starts: int) -> None:
    """Let retention advance the log's start, by one step each time the start was determined."""
    step, *others = starts

    def delete() -> None:
        cluster.cluster.logs[AT].delete_before(step)
        if others:
            delete_during_comparison(cluster, *others)

    cluster.after_start = delete


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("starts", [(2,), (2, 3)])
def test_copy_resumes_though_retention_deletes_records_during_comparison(
    clusters: Clusters, side: str, starts: tuple[int, ...]
) -> None:
    clusters.fill("abcdef", "abcd")
    delete_during_comparison(clusters.east if side == "source" else clusters.target, *starts)
    end = clusters.once_more()
    assert isinstance(end, End)
    assert end.offset == 4


@pytest.mark.parametrize("side", ["source", "target"])
def test_difference_after_deleted_records_is_reported(clusters: Clusters, side: str) -> None:
    clusters.fill("abcdef", "abcx")
    delete_during_comparison(clusters.east if side == "source" else clusters.target, 2)
    error = clusters.once_more()
    assert isinstance(error, WrongOffset)
    assert error.offset == 3
    assert "the value of the record differs" in str(error)
