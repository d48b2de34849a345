"""Sent batches, compared with the target's copies of them."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from support.batches import record_batch

from headrace.datapath.verify import BatchComparison, compared
from headrace.kafka.wire import Batch, BatchWriter, CorruptBatch, split_batches, stored_records

VALUES = [b"a", b"b", b"c"]


def batch(values: Sequence[bytes] = VALUES, base_offset: int = 7) -> Batch:
    data = record_batch(values, base_offset=base_offset)
    [made] = split_batches(memoryview(data)).batches
    return made


def moved(made: Batch, base_offset: int) -> Batch:
    data = bytearray(made.data)
    data[:8] = base_offset.to_bytes(8, "big")
    [again] = split_batches(memoryview(data)).batches
    return again


def rewritten(made: Batch, base_offset: int, codec: str) -> Batch:
    """Return the batch as compressed again by the target."""
    writer = BatchWriter(codec)
    for record in stored_records(made):
        writer.add(record)
    return moved(writer.finish(), base_offset)


def test_the_same_bytes() -> None:
    sent = batch()
    assert compared(sent, 40, [moved(sent, 40)]) == (BatchComparison.SAME, "")


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_the_same_records_that_the_target_compressed_again(codec: str) -> None:
    sent = batch()
    assert compared(sent, 40, [rewritten(sent, 40, codec)]) == (BatchComparison.SAME, "")


def test_another_value_that_the_target_compressed_again() -> None:
    sent = batch()
    writer = BatchWriter("gzip")
    for record in stored_records(sent):  # the same records except for one letter
        writer.add(record._replace(content=bytes(record.content).replace(b"b", b"B")))
    verdict, why = compared(sent, 40, [moved(writer.finish(), 40)])
    assert verdict is BatchComparison.DIFFERENT
    assert "the value of the record at offset 41" in why


@pytest.mark.parametrize("place", [0, 1])
def test_every_byte_counts(place: int) -> None:
    """All bytes from the attributes on are compared, except the producer."""
    sent = batch()
    copy = moved(sent, 40)
    for at in [*range(21, 43), *range(57, len(copy.data))]:
        data = bytearray(copy.data)
        data[at] ^= 1 << (7 * place)
        with suppress(CorruptBatch):  # an error that the caller handles as a difference
            stored = split_batches(memoryview(data)).batches
            assert compared(sent, 40, stored)[0] is not BatchComparison.SAME, at


def test_what_compaction_removed_is_not_verified_and_the_rest_is() -> None:
    sent = batch()
    writer = BatchWriter()
    first, *_ = stored_records(sent)
    writer.add(first)
    rest = moved(writer.finish(), 40)
    assert compared(sent, 40, [rest])[0] is BatchComparison.NOT_READ
    assert compared(sent, 40, [])[0] is BatchComparison.NOT_READ
    assert compared(batch([b"x", b"b", b"c"]), 40, [rest])[0] is BatchComparison.DIFFERENT
