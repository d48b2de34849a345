"""Small batches that are joined."""

import pytest
from support.stored import batches_of, content, log_batch, marker

from headrace.datapath.chunk import judged
from headrace.datapath.plan import coalesced
from headrace.kafka.wire import CorruptBatch, StoredRecord

LARGE = 20_000


def records(first: int, count: int = 1, size: int = 10) -> list[StoredRecord]:
    return [StoredRecord(first + n, 5, content(b"k", b"v" * size)) for n in range(count)]


def groups(*log: bytearray) -> list[list[int]]:
    """Return the groups by the first offsets of their batches."""
    return [
        [one.batch.base_offset for one in ones]
        for ones in coalesced(judged(batches_of(*log), start=0))
    ]


def test_small_ones_that_follow_each_other_become_one() -> None:
    log = [log_batch(records(0)), log_batch(records(1, 8)), log_batch(records(9))]

    assert groups(*log) == [[0, 1, 9]]


@pytest.mark.parametrize(
    "other",
    [
        log_batch(records(1, 9)),
        log_batch(records(1, size=LARGE)),
        log_batch(records(1), codec="gzip"),
        log_batch(records(1), attributes=0x10, producer_id=7),
        log_batch(records(1), attributes=0x08),
        log_batch(records(1), last_offset=2),
        marker(1, 7, commit=True),
    ],
)
def test_any_other_is_by_itself(other: bytearray) -> None:
    log = [log_batch(records(0)), other, log_batch(records(20)), log_batch(records(21))]

    assert groups(*log) == [[0], [1], [20, 21]]


def test_those_of_two_leader_epochs_stay_apart() -> None:
    log = [log_batch(records(0), leader_epoch=3), log_batch(records(1), leader_epoch=4)]

    assert groups(*log) == [[0], [1]]


def test_what_comes_before_a_damaged_one_is_not_lost() -> None:
    damaged = log_batch([StoredRecord(2, 0, b"")], attributes=0x30, producer_id=6)
    log = batches_of(log_batch(records(0)), log_batch(records(1)), damaged)
    found = coalesced(judged(log, start=0, aborted=[(6, 1)]))

    assert [one.batch.base_offset for one in next(found)] == [0, 1]
    with pytest.raises(CorruptBatch):
        next(found)
