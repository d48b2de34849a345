"""Two owners of a partition: no late batch is at a wrong offset unnoticed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.fake_broker import serving
from support.fake_kafka import MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord
from support.patience import WITHIN_S
from support.preserving_target import PreservingTarget

from headrace.api import TopicPartition
from headrace.datapath.preserved.holes import WrongOffset
from headrace.datapath.preserved.owner import End, TaskProducers, data_producer, ends_of, identified
from headrace.datapath.preserved.plan import Append
from headrace.datapath.preserved.writer import FirstBatch, Writer
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import BatchWriter, ClusterClient, EventLoop, encoded, start

AT = TopicPartition("orders", 0)
Batch = tuple[int, int]
"""First offset and the offset after the last. Each record has its offset as its value."""


class Owners:
    """Owners of one partition, with a target."""

    def __init__(self, serve: Any, records: int) -> None:
        cluster = FakeCluster("west", FakeClock())
        entries: list[FakeRecord | None] = [_record(offset) for offset in range(records)]
        cluster.logs = {AT: FakeLog(0, entries)}
        self.target = PreservingTarget(serve, cluster, AT.topic, 1)
        self._loop = EventLoop()
        self._cluster = ClusterClient(self._loop, self.target.access)
        self._leaders = Leaders(self._cluster)
        self._producer = self._wait(data_producer(self._cluster, "headrace-flow"))
        self._owner: TaskProducers = self._wait(identified(self._cluster, "headrace-task"))

    def end(self) -> End:
        found = self._wait(ends_of(self._cluster, {AT: self._producer}))[AT]
        assert isinstance(found, End)
        return found

    @contextmanager
    def writing(
        self, end: End, first: FirstBatch | None = None
    ) -> Iterator[Callable[[Batch], list[int | HeadraceError]]]:
        """Yield a function that appends a batch and returns the outcomes.

        It writes as an owner that found this end.
        """
        outcomes: list[int | HeadraceError] = []
        writer = Writer(
            self._leaders,
            self._owner,
            lambda at, next_offset, outgoing: outcomes.append(next_offset),
            lambda at, error: outcomes.append(error),
            first=first,
        )
        writer.begin(AT, end)

        def write(batch: Batch) -> list[int | HeadraceError]:
            writer.write(AT, _append(*batch))
            writer.flush()
            deadline_s = self._loop.now_s() + WITHIN_S
            before = len(outcomes)
            while len(outcomes) == before:
                assert self._loop.now_s() < deadline_s
                self._loop.run_once(0.05)
            return outcomes

        yield write
        writer.close()

    @property
    def log(self) -> list[int]:
        entries = self.target.cluster.logs[AT].entries
        return [-1 if one is MARKER else int(one.value or b"") for one in entries]

    def close(self) -> None:
        self._leaders.close()
        self._cluster.close()
        self._loop.close()

    def _wait(self, coroutine: Any) -> Any:
        return self._loop.wait(start(coroutine), WITHIN_S)


def _record(offset: int) -> FakeRecord:
    return FakeRecord(None, b"%d" % offset, 0)


def _append(first: int, end: int) -> Append:
    batch = BatchWriter()
    for offset in range(first, end):
        batch.add(encoded(offset, 0, None, b"%d" % offset))
    outgoing = Outgoing(batch.finish(), end, lambda: None, batch.offsets)
    return Append(outgoing, rebuilt=True)


@pytest.fixture
def made() -> Iterator[Callable[[int], Owners]]:
    with serving() as serve:
        owners: list[Owners] = []

        def make(records: int) -> Owners:
            owners.append(Owners(serve, records))
            return owners[-1]

        yield make
        for one in owners:
            one.close()


def test_a_batch_that_comes_while_the_end_is_asked_for_does_not_move_the_next_one(
    made: Callable[[int], Owners],
) -> None:
    """The producers' state is therefore requested first.

    If the log's end came first, the sequence would be the one after the late batch, and the offset
    the one before it.
    """
    owners = made(0)
    with owners.writing(owners.end()) as write:
        assert write((0, 5)) == [5]
    late = owners.end()
    with owners.writing(late) as write_late:

        def meanwhile() -> None:  # the earlier owner's request arrives
            for offset in (5, 6):
                owners.target.cluster.write(AT, _record(offset))
            state = owners.target.producer_states[AT, late.identity.producer_id]
            state.last_five.append((5, 2, 5))
            state.next_sequence = 7

        owners.target.meanwhile, owners.target.lagging = meanwhile, [5, 5]
        end = owners.end()
        with owners.writing(end) as write:
            [error] = write((end.offset, end.offset + 3))
            assert isinstance(error, Retriable)
        assert owners.log == list(range(7)), "nothing lies where it does not belong"
        with owners.writing(owners.end()) as write:
            assert write((7, 9)) == [9]
        assert isinstance(write_late((5, 8))[0], Retriable)
    assert owners.log == list(range(9))


def test_what_is_taken_for_a_repetition_is_not_taken_for_a_foreign_writer(
    made: Callable[[int], Owners],
) -> None:
    """In the same situation, the late batch had as many records as the next one."""
    owners = made(0)
    before = owners.end()
    with owners.writing(before) as write:
        assert write((0, 3)) == [3]
    stale = End(3, before.identity, before.sequence, before.known)
    with owners.writing(stale) as write:
        [error] = write((3, 6))
    assert isinstance(error, Retriable)
    assert "took what the source holds at offset 3 for a repetition" in str(error)
    assert owners.log == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_late_batch_that_finds_no_state_of_its_producer_is_not_taken_for_the_next_one(
    made: Callable[[int], Owners], count: int
) -> None:
    """Brokers forget a producer that is idle for a day, and then accept any sequence.

    Each owner therefore begins with a sequence derived from the offset. Otherwise two batches with
    the same number of records would look the same.
    """
    owners = made(10)
    late = owners.end()
    for offset in (10, 11):
        owners.target.cluster.write(AT, _record(offset))
    owners.target.producer_states.clear()
    end = owners.end()
    assert (end.offset, end.identity.epoch) == (12, 0)
    with owners.writing(late) as write:
        [lost] = write((10, 10 + count))  # at 12, its own offset
    assert isinstance(lost, WrongOffset)
    with owners.writing(end) as write:
        [error] = write((12, 12 + count))
    assert isinstance(error, HeadraceError), "it would look as if it were there"


def test_two_owners_without_a_state_append_the_same_batch_once(
    made: Callable[[int], Owners],
) -> None:
    owners = made(10)
    ends = [owners.end(), owners.end()]
    assert ends[0] == ends[1]
    for end in ends:
        with owners.writing(end) as write:
            assert write((10, 12)) == [12]
    assert owners.log == list(range(12))
