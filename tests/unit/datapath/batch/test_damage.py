"""Answers in which bits are flipped that no checksum covers: nothing is lost or copied twice."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from support.fake_broker import Serve
from support.stored import content, log_batch, marker
from support.wire_kafka import wire_cluster

from headrace.api import TopicPartition
from headrace.datapath.doubted_answers import Agreement
from headrace.datapath.tail import Tail
from headrace.kafka.wire import EventLoop, Scanner, StoredRecord
from headrace.kafka.wire.scan import BASE, COLUMNS, LAST, LEADER_EPOCH, PRODUCER_ID
from headrace.replication.reconcile import Record

EPOCH, UNKNOWN = 7, -1
UNCOVERED_BITS = 8 * 17
"""Base offset, length, leader epoch and magic. The checksum follows."""
MOST_ANSWERS = 40
Aborted = list[tuple[int, int]]


class Copied(NamedTuple):
    """A batch that was taken."""

    batch: int
    first_offset: int
    last_offset: int


class Log:
    """A log whose answers have at most two batches by default."""

    def __init__(self, ranges: Sequence[tuple[int, int]], epochs: Sequence[int] = ()) -> None:
        self.most = 2
        self.ranges = list(ranges)
        self.batches = [
            log_batch(
                [StoredRecord(offset, 5, content(None, b"x")) for offset in range(first, last + 1)],
                producer_id=number,
                leader_epoch=epochs[number] if epochs else EPOCH,
            )
            for number, (first, last) in enumerate(ranges)
        ]

    def answer(self, position: int) -> dict[int, bytearray]:
        """Return the batches of an answer by number."""
        there = [number for number, one in enumerate(self.ranges) if one[1] >= position]
        return {number: bytearray(self.batches[number]) for number in there[: self.most]}


class Reading:
    """A reader that takes what it believes."""

    def __init__(self, log: Log, position: int = 100, epoch: int = EPOCH) -> None:
        self.log, self.position, self.epoch = log, position, epoch
        self.aborted: Callable[[int], Aborted] = lambda _: []
        """List of aborted transactions in an answer, by the number of the answer."""
        self.copied: list[Copied] = []
        self.disagreements: list[str] = []
        self.answers = 0
        self._scanner, self._agreement = Scanner(), Agreement()

    def read(self, damage: Callable[[dict[int, bytearray]], None]) -> None:
        """Read to the end of the log; ``damage`` is called with each answer."""
        end = self.log.ranges[-1][1]
        while self.position <= end:
            assert self.answers < MOST_ANSWERS, (self.position, self.copied, self.disagreements)
            batches = self.log.answer(self.position)
            damage(batches)
            data = memoryview(bytearray(b"".join(batches.values())))
            self._take(data, self.aborted(self.answers))
            self.answers += 1

    def _take(self, data: memoryview, aborted: Aborted) -> None:
        scanned = self._agreement.believed(
            self._scanner.scan(data, self.position, aborted),
            self.position,
            self.epoch,
            EPOCH,
            aborted,
        )
        if self._agreement.disagreement:
            self.disagreements.append(self._agreement.disagreement)
            self._agreement.disagreement = ""
        for at in range(0, scanned.row_count * COLUMNS, COLUMNS):
            row = scanned.rows[at : at + COLUMNS]
            if row[LAST] < self.position:
                continue
            first = max(row[BASE], self.position)
            self.copied.append(Copied(row[PRODUCER_ID], first, row[LAST]))
            self.position, self.epoch = row[LAST] + 1, row[LEADER_EPOCH]


class Flip:
    """One flipped bit in a batch, the first time that it is sent."""

    def __init__(self, batch: int, bit: int) -> None:
        self.batch, self.bit, self.done = batch, bit, False

    def __call__(self, batches: dict[int, bytearray]) -> None:
        if not self.done and self.batch in batches:
            batches[self.batch][self.bit // 8] ^= 0x80 >> self.bit % 8
            self.done = True


def intact(_: dict[int, bytearray]) -> None:
    """Damage nothing."""


DENSE = [(100, 149), (150, 179), (180, 180), (181, 299), (300, 301), (302, 320)]
HOLES = [(100, 149), (153, 179), (250, 250), (251, 299), (400, 401), (402, 420)]
"""No hole is as large as a power of two, so that no flipped bit fills it."""


@pytest.mark.parametrize("epoch", [EPOCH, UNKNOWN])
@pytest.mark.parametrize("ranges", [DENSE, HOLES])
def test_one_flipped_bit_loses_and_doubles_nothing(
    ranges: list[tuple[int, int]], epoch: int
) -> None:
    log = Log(ranges)
    expected = [Copied(number, first, last) for number, (first, last) in enumerate(ranges)]
    for number in range(len(ranges)):
        for bit in range(UNCOVERED_BITS):
            reading = Reading(log, epoch=epoch)
            reading.read(Flip(number, bit))
            assert reading.copied == expected, (number, bit)
            assert reading.epoch == EPOCH, (number, bit)


def test_moved_batch_is_named() -> None:
    reading = Reading(Log(DENSE))
    reading.read(Flip(2, 63))

    assert reading.disagreements == [
        "offsets 181 to 181 of leader epoch 7 in one answer, and 180 to 180 of leader epoch 7 in "
        "the next one"
    ]


def test_log_without_holes_is_fetched_once() -> None:
    reading = Reading(Log(DENSE))
    reading.read(intact)

    assert reading.answers == len(DENSE) / 2
    assert reading.disagreements == []


def test_log_with_holes_is_fetched_at_most_twice() -> None:
    reading = Reading(Log(HOLES))
    reading.read(intact)

    assert [(one.first_offset, one.last_offset) for one in reading.copied] == HOLES
    assert reading.answers <= len(HOLES)
    assert reading.disagreements == []


def test_start_between_two_records_is_believed_after_a_second_answer() -> None:
    reading = Reading(Log(DENSE), position=120)
    reading.read(intact)

    assert reading.copied[0] == Copied(0, 120, 149)
    assert reading.answers == len(DENSE) / 2 + 1


def test_new_leader_is_believed_because_metadata_names_it() -> None:
    reading = Reading(Log(DENSE, epochs=[5, 5, 7, 7, 7, 7]), epoch=5)
    reading.read(intact)

    assert reading.answers == len(DENSE) / 2


def test_compaction_between_two_answers_is_no_damage() -> None:
    log = Log(HOLES)
    reading = Reading(log)

    def compacted(batches: dict[int, bytearray]) -> None:
        if reading.answers:
            batches.pop(0, None)  # the first answer had it

    reading.read(compacted)

    assert [(one.first_offset, one.last_offset) for one in reading.copied] == HOLES[1:]
    assert reading.disagreements == []


@pytest.mark.parametrize("first_answer", [(1, 150), (3, 150), (1, 158)])
def test_aborted_transactions_are_believed_if_two_answers_name_them(
    first_answer: tuple[int, int],
) -> None:
    reading = Reading(Log(DENSE))
    named = (1, 150)
    reading.aborted = lambda answer: [named if answer else first_answer]
    reading.read(intact)

    assert [(one.first_offset, one.last_offset) for one in reading.copied] == DENSE
    assert bool(reading.disagreements) == (first_answer != named)


def test_aborted_transaction_that_ended_in_accepted_batches_is_not_expected_again() -> None:
    log = Log([(100, 149), (150, 178), (179, 179), (180, 320), (321, 400)])
    log.batches[2] = marker(179, producer_id=1, commit=False)
    reading = Reading(log)
    reading.aborted = lambda _: [(1, 150)] if reading.position <= 179 else []

    def growing(_: dict[int, bytearray]) -> None:
        log.most += 1

    log.most = 3
    reading.read(growing)

    assert [(one.first_offset, one.last_offset) for one in reading.copied] == log.ranges
    assert reading.disagreements == []
    assert reading.answers == 3


@pytest.mark.parametrize("bit", [0x01, 0x20])
def test_tail_is_read_again_if_an_answer_moved_a_batch(
    loop: EventLoop, serve: Serve, bit: int
) -> None:
    source = wire_cluster(serve, "east")
    source.append(b"a", b"b")
    log = source.logs[0]
    moved = bytearray(log.batches[0])
    moved[7] ^= bit
    source.answers[0].garbage = [bytes(moved)]
    cluster = source.client(loop)
    try:
        tail = Tail(cluster, TopicPartition("orders", 0), 0, patience_s=5)
        found = list(tail.of_source())
    finally:
        cluster.close()

    values = [(one.offset, one.value) for one in found if isinstance(one, Record)]
    assert values == [(0, b"a"), (1, b"b")]
