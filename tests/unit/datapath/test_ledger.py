"""Leader epoch of the offset before the acknowledged one, which a next lane names to brokers.

With a lower epoch, the log would look truncated.
"""

import pytest
from support.stored import batches_of, content, log_batch, marker

from headrace.api import TopicPartition
from headrace.datapath import CopiedCounts, CopyFrom
from headrace.datapath.chunk import judged
from headrace.datapath.ledger import Ledger
from headrace.datapath.preserved.plan import Hole, planned
from headrace.datapath.spans import Outgoing
from headrace.kafka.wire import StoredRecord

AT = TopicPartition("orders", 0)


def batch(first: int, end: int, epoch: int, timestamp_ms: int = 1) -> Outgoing:
    value = content(None, b"a")
    records = [StoredRecord(offset, timestamp_ms, value) for offset in range(first, end)]
    [found] = batches_of(log_batch(records, leader_epoch=epoch))
    return Outgoing(found, end, lambda: None)


@pytest.fixture
def ledger() -> Ledger:
    """Return a ledger with one acknowledged record, of epoch 3."""
    ledger = Ledger(AT, AT, CopyFrom(0, -1), CopiedCounts())
    ledger.sent(first := batch(0, 1, 3))
    assert reached(ledger) == (0, -1)
    ledger.delivered(first, 0)
    assert reached(ledger) == (1, 3)
    return ledger


def reached(ledger: Ledger) -> tuple[int, int]:
    mark = ledger.mark()
    return mark.acknowledged, mark.leader_epoch


def test_records_in_flight_do_not_count(ledger: Ledger) -> None:
    ledger.sent(batch(1, 3, 9))
    assert (reached(ledger), ledger.leader_epoch) == ((1, 3), 9)
    ledger.rewind()
    assert (ledger.position, ledger.leader_epoch) == (1, 3)


def test_a_part_of_a_batch_counts(ledger: Ledger) -> None:
    ledger.sent(batch(1, 3, 9))
    ledger.sent(batch(3, 4, 10))
    ledger.delivered(batch(1, 2, 9), 1)
    assert reached(ledger) == (2, 9)


def test_offsets_without_a_record_may_have_the_epoch_of_the_next_one(ledger: Ledger) -> None:
    ledger.sent(batch(3, 4, 9))
    assert reached(ledger) == (3, 9)


def test_planned_holes_have_the_epoch_of_the_batch_in_or_after_them() -> None:
    record = StoredRecord(2, 1, content(None, b"a"))
    batches = batches_of(log_batch([record], leader_epoch=8), marker(3, 5, commit=True))
    operations = planned(judged(batches, start=0, aborted=[]), start=0, release=lambda: None)
    assert [one for one in operations if isinstance(one, Hole)] == [Hole(0, 2, 8), Hole(3, 4, 7)]


def test_a_hole_has_the_epoch_of_its_end(ledger: Ledger) -> None:
    ledger.skipping(2, 5)
    ledger.sent(batch(2, 3, 9))
    assert reached(ledger) == (1, 3)
    ledger.unsent(1, 0)
    assert (ledger.position, ledger.leader_epoch) == (2, 5)
    ledger.skipped(2)
    assert reached(ledger) == (2, 5)


@pytest.mark.parametrize("committing", [False, True])
def test_the_oldest_timestamp_is_that_of_the_first_record_that_is_not_copied(
    ledger: Ledger, committing: bool
) -> None:
    if committing:
        ledger.begin_transactions()
    ledger.sent(first := batch(1, 2, 3, timestamp_ms=10))
    ledger.sent(second := batch(2, 3, 3, timestamp_ms=20))
    assert ledger.oldest_timestamp_ms == 10
    ledger.delivered(first, 1)
    assert ledger.oldest_timestamp_ms == (10 if committing else 20)
    ledger.delivered(second, 2)
    assert ledger.oldest_timestamp_ms == (10 if committing else 20)
    ledger.commit(marked=True)
    assert ledger.oldest_timestamp_ms == 20
