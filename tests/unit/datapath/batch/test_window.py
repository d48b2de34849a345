"""Committed and acknowledged offsets of a partition."""

from support.batches import record_batch

from headrace.api import TopicPartition
from headrace.datapath import CopiedCounts, CopyFrom
from headrace.datapath.ledger import Ledger
from headrace.datapath.spans import Outgoing
from headrace.kafka.wire import split_batches
from headrace.replication import ContiguousRange

AT = TopicPartition("orders", 0)


def batch(offset: int, records: int) -> Outgoing:
    content = record_batch([b"v"] * records, base_offset=offset)
    [made] = split_batches(memoryview(content)).batches
    return Outgoing(made, offset + records, lambda: None)


def copied(window: Ledger, offset: int, records: int, target: int) -> None:
    outgoing = batch(offset, records)
    window.sent(outgoing)
    window.delivered(outgoing, target)


def in_transactions() -> Ledger:
    window = Ledger(AT, AT, CopyFrom(5, -1), CopiedCounts())
    window.committed = window.mark()
    return window


def test_what_is_acknowledged_counts_once_it_is_committed() -> None:
    window = in_transactions()
    assert not window.changed
    copied(window, 5, 3, 100)
    assert window.committed is not None
    assert (window.acknowledged, window.committed.acknowledged) == (8, 5)
    assert (window.in_flight, window.uncommitted, window.unfinished) == (0, 3, 3)
    assert window.changed
    assert window.take_runs() == []
    assert window.cut_runs() == [ContiguousRange(5, 100, 3, 1)]
    window.commit(marked=True)
    assert (window.committed.acknowledged, window.unfinished, window.changed) == (8, 0, False)
    assert window.take_runs() == [ContiguousRange(5, 100, 3, 1)]


def test_what_holds_nothing_to_copy_is_committed_too() -> None:
    window = in_transactions()
    window.passed(9, 0)
    assert window.changed
    assert window.unfinished == 0
    window.commit(marked=False)
    assert not window.changed


def test_a_marker_is_expected_and_not_acknowledged() -> None:
    """A leader that dies may lose the marker, and the next leader may write it in a later epoch.

    If the marker counted as acknowledged, this would be a loss of the target.
    """
    window = in_transactions()
    copied(window, 5, 3, 100)
    window.commit(marked=True)
    assert window.target_offset == 103
    copied(window, 8, 2, 104)
    assert (window.target_offset, window.unexpected_offsets) == (106, 0)
    copied(window, 10, 1, 107)
    assert window.unexpected_offsets == 1, "there was no marker"
    assert window.lost is None
