"""The source's facts in an outgoing batch."""

from support.batches import record_batch

from headrace.datapath.spans import Outgoing
from headrace.kafka.wire import split_batches


def test_a_copied_batch_keeps_the_offsets_of_the_source() -> None:
    content = record_batch([b"a", b"b", b"c"], base_offset=40)
    [batch] = split_batches(memoryview(content)).batches

    outgoing = Outgoing(batch, batch.last_offset + 1, release=lambda: None)

    assert (outgoing.first_offset, outgoing.next_offset, outgoing.records) == (40, 43, 3)
    assert [outgoing.source_offset(index) for index in range(3)] == [40, 41, 42]
    assert outgoing.payload_bytes == len(content) - 61


def test_a_rebuilt_batch_lists_them() -> None:
    [batch] = split_batches(memoryview(record_batch([b"a", b"b"]))).batches

    outgoing = Outgoing(batch, 50, release=lambda: None, offsets=[41, 47])

    assert (outgoing.first_offset, outgoing.next_offset) == (41, 50)
    assert [outgoing.source_offset(index) for index in range(2)] == [41, 47]
