"""Lane with equal offsets, between clusters in memory: its writes, and when they count."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_broker import serving
from support.fake_kafka import GONE, MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord
from support.patience import WITHIN_S
from support.preserving_target import LATE, PreservingTarget
from support.producer_state import ProducerState

from headrace.api import TaskType, TopicPartition
from headrace.api.offsets import GapPolicy
from headrace.assign import TaskId
from headrace.datapath import (
    Before,
    Closed,
    CopiedCounts,
    CopyFrom,
    PreservedMover,
    Resumed,
    TargetLoss,
)
from headrace.datapath.preserved.holes import WrongOffset
from headrace.datapath.resources import LaneSettings
from headrace.errors import Retriable
from headrace.kafka.wire import BatchWriter, ProducerIdentity, encoded, split_batches, stamped
from headrace.replication import OwnerProducer

AT = TopicPartition("orders", 0)
NAME = "headrace-task"


class Lanes:
    """Lanes that run one after the other.

    Each character of a log is a record, ``-`` is an offset without one, and ``.`` is an offset that
    compaction has removed.
    """

    def __init__(self, serve: Any) -> None:
        self._serve = serve
        self.holes = GapPolicy.MARKERS
        self.settings = LaneSettings()
        self.copied = CopiedCounts()
        self.compacts = False
        """Whether the source's topic is compacted."""

    def fill(self, source: str, target: str = "") -> None:
        self.east, self.west = (
            self._cluster(name, cells) for name, cells in (("east", source), ("west", target))
        )
        self.replace()
        data = self.mover.fencing.data_writer("f-source-task-0")
        assert data is not None
        self.data: OwnerProducer = data

    def _cluster(self, name: str, cells: str) -> PreservingTarget:
        cluster = FakeCluster(name, FakeClock())
        kept: dict[str, FakeRecord | None] = {"-": MARKER, ".": GONE}
        entries = [kept[cell] if cell in kept else _record(cell) for cell in cells]
        cluster.logs = {AT: FakeLog(0, entries)}
        return PreservingTarget(self._serve, cluster, AT.topic, 1)

    def replace(self) -> None:
        """Make another process the owner."""
        self.mover = PreservedMover(
            self.east.access,
            self.west.access,
            lambda topic: topic,
            holes=self.holes,
            settings=self.settings,
        )
        self.lane = self.mover.lane(TaskId("f", TaskType.SOURCE_TASK, 0), print, self.copied)

    def open(self) -> None:
        """Take over the partition, and copy it."""
        self.copy(self.take_over())

    def take_over(self) -> OwnerProducer:
        """Take over the partition and determine its end."""
        own = self.mover.fencing.identify(NAME)
        before = Before(AT, 0, 0, frozenset(), data_writer=self.data, source_compacts=self.compacts)
        found = self.mover.fencing.resume(own, {AT: before})[AT]
        assert isinstance(found, Resumed), found
        self.end = found.resume.source_offset
        return own

    def copy(self, own: OwnerProducer) -> None:
        """Copy from the end that the take-over found."""
        offset = self.end
        self.lane.open({AT: CopyFrom(offset, -1, offset, writer=own)})

    def arrive(self, value: bytes, sequence: int) -> None:
        """Deliver a batch of an earlier owner."""
        writer = BatchWriter()
        writer.add(encoded(0, 1_000, None, value))
        sent = stamped(writer.finish(), ProducerIdentity(self.data.producer_id, 0), sequence)
        data = memoryview(bytearray(bytes(sent.header) + sent.records))
        [batch] = split_batches(data).batches
        self.west.decide(AT, batch)

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline_s = time.monotonic() + WITHIN_S
        while not (found := condition()):
            assert time.monotonic() < deadline_s, (self.lane.state(), self.log)
            self.lane.run_once()
            time.sleep(0.005)
        return found

    def until_acknowledged(self, offset: int) -> None:
        self.until(lambda: self.acknowledged() == offset)

    def acknowledged(self) -> int:
        return self.lane.state()[AT].acknowledged

    @property
    def log(self) -> str:
        entries = self.west.cluster.logs[AT].entries
        return "".join("-" if one is MARKER else (one.value or b"").decode() for one in entries)

    def close(self) -> None:
        self.lane.close()


def _record(cell: str) -> FakeRecord:
    return FakeRecord(None, cell.encode(), 1_000)


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    with serving() as serve:
        made = Lanes(serve)
        yield made
        made.close()


def test_what_the_source_holds_is_at_its_offsets(lanes: Lanes) -> None:
    lanes.fill("ab-c---de", "ab")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 9)
    assert lanes.log == "ab-c---de"
    state = lanes.lane.state()[AT]
    assert (state.target_offset, state.in_flight, state.unexpected_offsets) == (9, 0, 0)
    assert (lanes.copied.records, lanes.copied.filled) == (3, 4)
    lanes.east.cluster.append(AT.topic, b"f")
    lanes.until(lambda: lanes.log == "ab-c---def")
    assert lanes.lane.problems() == []


def test_holes_of_compaction_have_copies_of_the_next_record_if_they_are_to(lanes: Lanes) -> None:
    lanes.holes = GapPolicy.COPIES
    lanes.fill("..ab.c--...d.-e-.")
    lanes.open()
    lanes.until_acknowledged(16)
    assert lanes.log == "aaabcc--dddd--e-"
    assert (lanes.copied.records, lanes.copied.filled) == (11, 5)


@pytest.mark.parametrize("copies", [True, False])
def test_a_take_over_in_the_middle_of_such_a_hole_goes_on(lanes: Lanes, copies: bool) -> None:
    lanes.holes = GapPolicy.COPIES if copies else GapPolicy.MARKERS
    lanes.fill("ab.....cd", "abcc")
    lanes.open()
    lanes.until_acknowledged(9)
    assert lanes.log == ("abccccccd" if copies else "abcc---cd")
    assert lanes.lane.problems() == []


def test_holes_have_empty_records_that_are_aborted_if_they_are_to(lanes: Lanes) -> None:
    lanes.holes = GapPolicy.ABORTED_FILLERS
    lanes.fill("ab.......c--d" + "-" * 20 + "e", "ab-")
    lanes.open()
    lanes.until_acknowledged(34)
    assert lanes.log == "ab-------c--d" + "-" * 20 + "e"
    at_markers = {offset for _, offset in lanes.west.markers}
    assert 32 in at_markers, "the last of a transaction"
    assert at_markers.isdisjoint(range(13, 32)), "its records"
    assert lanes.lane.problems() == []


def test_what_is_no_copy_of_the_next_record_is_at_a_wrong_offset(lanes: Lanes) -> None:
    lanes.holes = GapPolicy.COPIES
    lanes.fill("ab....cd", "abcb")
    own = lanes.mover.fencing.identify(NAME)
    before = Before(AT, 0, 0, frozenset(), data_writer=lanes.data)
    error = lanes.mover.fencing.resume(own, {AT: before})[AT]
    assert isinstance(error, WrongOffset)
    assert error.offset == 3


def test_a_hole_counts_once_it_is_written(lanes: Lanes) -> None:
    """If progress were ahead of the target, the next owner would compare too little."""
    lanes.fill("ab---cd")
    lanes.west.holds_markers = True
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 2)
    state = lanes.until(lambda: (one := lanes.lane.state()[AT]).in_flight == 5 and one)
    for _ in range(20):
        lanes.lane.run_once()
        time.sleep(0.005)
    assert (lanes.acknowledged(), state.target_offset, lanes.log) == (2, 2, "ab")
    lanes.west.holds_markers = False
    lanes.until(lambda: lanes.acknowledged() == 7)
    assert lanes.log == "ab---cd"


def test_a_hole_is_filled_though_the_target_seems_to_have_lost_earlier_records(
    lanes: Lanes,
) -> None:
    lanes.settings = LaneSettings(epoch_interval_s=0.2)
    lanes.fill("ab--c")
    own = lanes.take_over()
    lanes.west.holds_markers = True
    lanes.copy(own)
    lanes.until(lambda: lanes.acknowledged() == 2)
    # Before its first marker, the hole is compared with the end of the log.
    lanes.until(lambda: any(one.partitions for one in lanes.west.transactional.values()))
    lanes.west.answers[0].epoch_end = (4, 1)
    [problem] = lanes.until(lanes.lane.problems)
    assert isinstance(problem.error, TargetLoss)
    lanes.west.holds_markers = False
    lanes.until_acknowledged(5)
    assert lanes.log == "ab--c"


def test_a_late_batch_in_the_place_of_the_first_one_is_noticed(lanes: Lanes) -> None:
    """An earlier owner read it before the source lost it; its sequence is that of ours."""
    lanes.fill("abcdeg", "abcde")
    lanes.open()

    def comes_late(*_: object) -> None:
        lanes.west.cluster.write(AT, _record("f"))
        state = lanes.west.producer_states[AT, lanes.data.producer_id] = ProducerState(0, 6)
        state.last_five.append((5, 1, 5))

    lanes.west.fault = comes_late
    [problem] = lanes.until(lanes.lane.problems)
    assert isinstance(problem.error, WrongOffset)
    assert problem.error.offset == 5
    assert "orders-0 on west" in str(problem.error)
    assert "does not hold from offset 5 on what the source holds there" in str(problem.error)
    assert lanes.acknowledged() == 5
    assert lanes.log == "abcdef", "nothing follows it"


def with_a_late_batch(lanes: Lanes) -> None:
    """Kill the owner while record ``f`` is in flight, and let compaction remove it."""
    lanes.compacts = True
    lanes.fill("abcde")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 5)
    lanes.west.fault = lambda *_: LATE
    lanes.east.cluster.append(AT.topic, b"f")
    lanes.until(lambda: lanes.west.late)
    lanes.lane.close()
    lanes.west.fault = lambda *_: None
    del lanes.west.late[1:]
    lanes.east.cluster.logs[AT].entries[5] = GONE
    for value in (b"g", b"h"):
        lanes.east.cluster.append(AT.topic, value)
    lanes.replace()


def test_what_an_earlier_owner_sent_is_refused_behind_the_first_marker(lanes: Lanes) -> None:
    """By its sequence alone it would be appended there, between the marker and our first batch."""
    with_a_late_batch(lanes)
    arrived: list[str] = []

    def arrives(*_: object) -> None:
        if lanes.west.late:
            lanes.west.arrive(0)
            arrived.append(lanes.log)

    lanes.west.fault = arrives
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 8)
    assert arrived == ["abcde-"]
    assert lanes.log == "abcde-gh"
    assert lanes.lane.problems() == []


def test_what_an_earlier_owner_sent_counts_before_the_first_marker(lanes: Lanes) -> None:
    """It is at its offset of the source."""
    with_a_late_batch(lanes)
    own = lanes.take_over()
    lanes.west.arrive(0)
    lanes.copy(own)
    [problem] = lanes.until(lanes.lane.problems)
    assert isinstance(problem.error, Retriable)
    assert "ended at 5, and ends at 6 now" in str(problem.error)
    lanes.lane.close()
    lanes.replace()
    lanes.open()
    lanes.until_acknowledged(8)
    assert lanes.log == "abcdefgh"


def test_what_an_earlier_owner_sent_is_noticed_behind_the_end_that_was_found(lanes: Lanes) -> None:
    with_a_late_batch(lanes)
    own = lanes.take_over()
    lanes.west.meanwhile = lambda: lanes.west.arrive(0)
    lanes.copy(own)
    [problem] = lanes.until(lanes.lane.problems)
    assert isinstance(problem.error, WrongOffset)
    assert problem.error.offset == 5
    assert "ends at offset 7 after the markers, not at 6" in str(problem.error)
    assert (lanes.acknowledged(), lanes.log) == (5, "abcdef-")


def test_what_an_earlier_owner_sent_is_refused_behind_a_later_marker(lanes: Lanes) -> None:
    """It had sent ``g`` after ``f``, when the source had that record."""
    lanes.fill("abcde")
    lanes.open()
    lanes.until_acknowledged(5)
    lanes.lane.close()
    for value in (b"f", b"g", b"h"):
        lanes.east.cluster.append(AT.topic, value)
    lanes.east.cluster.logs[AT].entries[6] = GONE
    arrived: list[str] = []

    def arrives(*_: object) -> None:
        arrived.append(lanes.log)
        if len(arrived) == 2:
            lanes.arrive(b"g", 6)

    lanes.west.fault = arrives
    lanes.replace()
    lanes.open()
    lanes.until_acknowledged(8)
    assert arrived[:2] == ["abcde", "abcdef-"]
    assert lanes.log == "abcdef-h"
    assert lanes.lane.problems() == []


def test_what_an_earlier_owner_has_begun_with_the_datas_id_ends_first(lanes: Lanes) -> None:
    """Otherwise its marker would follow the end that was found."""
    lanes.fill("ab-c", "ab")
    lanes.west.transactional[lanes.data.transactional_id].partitions.add(AT)
    lanes.open()
    lanes.until_acknowledged(4)
    assert lanes.log == "ab-c"
    assert lanes.lane.problems() == []


@pytest.mark.parametrize("expired", [False, True])
def test_data_goes_on_behind_a_first_marker_in_each_epoch(lanes: Lanes, expired: bool) -> None:
    """The epoch is higher, or the data's transactional id has expired."""
    lanes.fill("ab")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 2)
    log = "ab"
    for number in range(3):
        lanes.lane.close()
        lanes.east.cluster.write(AT, MARKER)
        lanes.east.cluster.append(AT.topic, b"%d" % number)
        if expired:
            del lanes.west.transactional[lanes.data.transactional_id]
        lanes.replace()
        lanes.open()
        log += f"-{number}"
        lanes.until_acknowledged(len(log))
    assert lanes.log == log
    epoch = lanes.west.producer_states[AT, lanes.data.producer_id].epoch
    assert (epoch > 0) != expired


def test_another_client_is_noticed(lanes: Lanes) -> None:
    lanes.fill("ab", "")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 2)
    lanes.west.cluster.write(AT, _record("x"))
    lanes.east.cluster.append(AT.topic, b"c")
    [problem] = lanes.until(lanes.lane.problems)
    assert isinstance(problem.error, WrongOffset)
    assert lanes.acknowledged() == 2


def test_a_partition_that_comes_back_goes_on_with_the_same_epoch(lanes: Lanes) -> None:
    lanes.fill("ab-c")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 4)
    lanes.lane.leave({AT})
    lanes.lane.forget({AT})
    lanes.east.cluster.append(AT.topic, b"d")
    lanes.east.cluster.write(AT, MARKER)
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 6)
    assert lanes.log == "ab-cd-"


def test_a_lane_that_ends_gives_its_epoch_up(lanes: Lanes) -> None:
    lanes.fill("ab")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 2)
    first = lanes.mover.fencing.identify(NAME)
    assert lanes.mover.fencing.identify(NAME) == first
    lanes.lane.drop_unsent()
    assert lanes.mover.fencing.identify(NAME).producer_epoch == first.producer_epoch + 1


def test_behind_a_fail_over_no_lane_appends_data_or_markers(lanes: Lanes) -> None:
    lanes.fill("ab-c")
    lanes.open()
    lanes.until(lambda: lanes.acknowledged() == 4)
    fencing = PreservedMover(lanes.east.access, lanes.west.access, str).fencing
    writers = frozenset({lanes.mover.fencing.identify(NAME)})
    before = Before(AT, 4, 4, writers, data_writer=lanes.data)
    closed = fencing.close(fencing.identify("headrace-failover"), {AT: before})
    assert closed == {AT: Closed(0, frozenset())}
    for more in (b"d", None):
        lanes.east.cluster.write(AT, _record(more.decode()) if more else MARKER)
    [problem] = lanes.until(lanes.lane.problems)
    assert isinstance(problem.error, Retriable)
    assert lanes.log == "ab-c-"
    assert lanes.acknowledged() == 4


def test_a_partition_that_leaves_does_not_wait_for_the_end_of_a_long_hole(lanes: Lanes) -> None:
    lanes.settings = LaneSettings(marked_offsets=10)
    lanes.fill("ab" + "-" * 35 + "cd-e")
    lanes.west.holds_markers = True
    lanes.open()
    lanes.until(lambda: lanes.lane.state()[AT].in_flight == 39)
    lanes.lane.leave({AT})
    lanes.west.holds_markers = False
    lanes.until(lambda: not lanes.lane.in_flight)
    assert (lanes.acknowledged(), lanes.log) == (12, "ab" + "-" * 10)
    lanes.lane.keep({AT})
    lanes.until(lambda: lanes.acknowledged() == 41)
    assert lanes.log == "ab" + "-" * 35 + "cd-e"
    assert lanes.lane.state()[AT].in_flight == 0
    assert lanes.lane.problems() == []
