"""Batches are written at their planned offsets, and other clients' writes there are noticed."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_broker import serving
from support.fake_kafka import MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord
from support.patience import WITHIN_S
from support.preserving_target import PreservingTarget
from support.stored import batches_of

from headrace.api import TopicPartition
from headrace.datapath.markers import new_epoch
from headrace.datapath.preserved.holes import WrongOffset
from headrace.datapath.preserved.owner import Closer, data_producer, ends_of, identified
from headrace.datapath.preserved.plan import Append, Hole
from headrace.datapath.preserved.writer import Writer
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError
from headrace.kafka.wire import BatchWriter, ClusterClient, EventLoop, encoded, start

AT, OTHER = (TopicPartition("orders", number) for number in range(2))
DATA = "headrace-data"


class Writing:
    """Owner, with its target."""

    def __init__(self, serve: Any) -> None:
        cluster = FakeCluster("west", FakeClock())
        cluster.logs = {at: FakeLog() for at in (AT, OTHER)}
        self.target = PreservingTarget(serve, cluster, AT.topic, 2)
        self._loop = EventLoop()
        self._cluster = ClusterClient(self._loop, self.target.access)
        self._leaders = Leaders(self._cluster)
        self.written: list[int] = []
        self.errors: list[HeadraceError] = []
        self.released = 0
        owner = self._wait(identified(self._cluster, "headrace-task"))
        self._producer = self._wait(data_producer(self._cluster, DATA))
        self.writer = Writer(
            self._leaders,
            owner,
            lambda at, next_offset, outgoing: self.written.append(next_offset),
            lambda at, error: self.errors.append(error),
        )
        self.writer.begin(AT, self.end(AT))

    def end(self, at: TopicPartition) -> Any:
        return self._wait(ends_of(self._cluster, {at: self._producer}))[at]

    def begin(self, at: TopicPartition) -> None:
        """Begin after a take-over, which raises the epoch of the data's transactional id."""
        raised = self._wait(new_epoch(self._cluster, DATA))
        self.writer.begin(at, self.end(at), Closer(DATA, raised))

    def append(self, first: int, end: int) -> None:
        batch = BatchWriter()
        for offset in range(first, end):
            batch.add(encoded(offset, 0, None, b"%d" % offset))
        outgoing = Outgoing(batch.finish(), end, self._release, batch.offsets)
        self.writer.write(AT, Append(outgoing, rebuilt=True))

    def hole(self, first: int, end: int) -> None:
        self.writer.write(AT, Hole(first, end))

    def until(self, next_offset: int) -> None:
        """Run until the offset is written, or a write has failed."""
        self.writer.flush()
        deadline_s = self._loop.now_s() + WITHIN_S
        while self.written[-1:] != [next_offset] and not self.errors:
            assert self._loop.now_s() < deadline_s, (self.written, self.log)
            self._loop.run_once(0.05)

    @property
    def log(self) -> list[bytes | None]:
        entries = self.target.cluster.logs[AT].entries
        return [None if one is MARKER else one.value for one in entries]

    def interfere(self) -> None:
        """Append a record as another client."""
        self.target.cluster.write(AT, FakeRecord(None, b"foreign", 0))

    def close(self) -> None:
        self.writer.close()
        self._leaders.close()
        self._cluster.close()
        self._loop.close()

    def _release(self) -> None:
        self.released += 1

    def _wait(self, coroutine: Any) -> Any:
        return self._loop.wait(start(coroutine), WITHIN_S)


@pytest.fixture
def writing() -> Iterator[Writing]:
    with serving() as serve:
        writing = Writing(serve)
        yield writing
        writing.close()


def test_data_and_holes_come_in_their_order(writing: Writing) -> None:
    writing.hole(0, 2)
    writing.append(2, 4)
    writing.append(4, 5)
    writing.hole(5, 11)  # with more offsets than ids
    writing.append(11, 12)
    writing.until(12)
    assert writing.log == [None, None, b"2", b"3", b"4", *[None] * 6, b"11"]
    assert writing.written == [2, 4, 5, 11, 12]
    assert (writing.errors, writing.writer.pending, writing.released) == ([], 0, 3)


def test_each_owner_gives_the_first_record_the_same_sequence(writing: Writing) -> None:
    """A leader that does not know the producer would append the record with each sequence."""
    writing.hole(0, 2)
    writing.hole(2, 3)
    writing.until(3)
    found_later = writing.end(AT)
    writing.append(3, 4)
    writing.until(4)
    (request,) = writing.target.sent
    (sent,) = batches_of(request[AT.partition])
    assert (found_later.offset, found_later.sequence) == (3, sent.base_sequence)


def test_a_partition_that_is_added_leaves_others_their_first_marker(writing: Writing) -> None:
    """The take-over of the added partition has raised the epoch of that marker again."""
    writing.begin(AT)
    writing.begin(OTHER)
    writing.append(0, 1)
    writing.hole(1, 3)
    writing.append(3, 4)
    writing.until(4)
    assert (writing.errors, writing.log) == ([], [b"0", None, None, b"3"])


def test_data_goes_on_behind_a_hole_where_the_partition_knows_the_new_epoch(
    writing: Writing,
) -> None:
    """The coordinator has ended an earlier owner's transaction there when it raised the epoch."""
    writing.target.transactional[DATA].partitions.add(AT)
    writing.begin(AT)
    writing.append(1, 3)
    writing.hole(3, 4)
    writing.append(4, 6)  # with the first sequence, it would count as a repetition
    writing.append(6, 8)
    writing.until(8)
    assert (writing.errors, writing.log) == (
        [],
        [None, b"1", b"2", None, b"4", b"5", b"6", b"7"],
    )


def test_a_foreign_record_before_data_stops_the_partition(writing: Writing) -> None:
    writing.append(0, 2)
    writing.until(2)
    writing.interfere()
    for offset in range(2, 5):
        writing.append(offset, offset + 1)
    writing.until(5)
    [error] = writing.errors
    assert isinstance(error, WrongOffset)
    assert (error.at, error.offset) == (AT, 2)
    assert "what the source holds at offset 2 was appended to orders-0 on west" in str(error)
    assert "at 3: from 2 on, offsets differ from the source's" in str(error)
    assert writing.written == [2]
    writing.append(5, 6)  # on a partition that has stopped
    assert writing.written == [2]


def test_a_foreign_record_in_a_hole_stops_the_partition(writing: Writing) -> None:
    writing.append(0, 2)
    writing.until(2)
    writing.interfere()
    writing.hole(2, 4)
    writing.append(4, 5)
    writing.until(5)
    [error] = writing.errors
    assert isinstance(error, WrongOffset)
    assert error.offset == 2
    assert "ends at offset 5 after the markers, not at 4" in str(error)
    assert writing.log[-1] is None  # nothing follows the markers
    assert writing.released == 2
