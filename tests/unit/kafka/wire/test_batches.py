"""Record batches are read in place, and batches that no broker writes are rejected."""

import struct

import pytest
from support.batches import record_batch

from headrace.kafka.wire.batches import HEADER_BYTES, split_batches
from headrace.kafka.wire.errors import CorruptBatch


def test_batches_are_found_where_they_lie() -> None:
    first = record_batch([b"a", b"b"], base_offset=7, producer_id=12, producer_epoch=3)
    second = record_batch([b"c"], base_offset=9, attributes=0x30)
    log = bytearray(first + second)

    found, truncated = split_batches(memoryview(log))

    assert truncated == 0
    assert [batch.data.tobytes() for batch in found] == [bytes(first), bytes(second)]
    assert (found[0].base_offset, found[0].last_offset, found[0].record_count) == (7, 8, 2)
    assert (found[0].producer_id, found[0].producer_epoch) == (12, 3)
    assert (found[0].codec, found[0].transactional, found[0].control) == ("none", False, False)
    assert (found[1].transactional, found[1].control, found[1].log_append_time) == (1, 1, 0)
    log[-1] ^= 1
    assert (found[0].intact, found[1].intact) == (True, False), "the views share the memory"


@pytest.mark.parametrize("missing", [1, HEADER_BYTES, 60])
def test_a_truncated_last_batch_is_left_out(missing: int) -> None:
    whole, cut = record_batch([b"a"]), record_batch([b"b" * 80], base_offset=1)

    found, truncated = split_batches(memoryview(whole + cut[:-missing]))

    assert len(found) == 1
    assert truncated == len(cut) - missing


def test_a_compacted_batch_has_more_offsets_than_records() -> None:
    batch = record_batch([b"a", b"b"])
    struct.pack_into(">i", batch, 57, 1)

    (found,), _ = split_batches(memoryview(batch))

    assert (found.record_count, found.last_offset) == (1, 1)


def test_an_old_message_is_passed_with_its_magic() -> None:
    message = struct.pack(">qiIbb", 5, 14, 0, 1, 0) + struct.pack(">ii", -1, -1)

    (found,), truncated = split_batches(memoryview(message))

    assert (found.magic, found.base_offset, truncated) == (1, 5, 0)


@pytest.mark.parametrize(
    ("place", "kind", "value", "said"),
    [
        (16, ">b", 3, "has magic 3"),
        (16, ">b", -1, "has magic -1"),
        (8, ">i", 48, "48 bytes follow: at least 49 do"),
        (8, ">i", -1, "-1 bytes follow"),
        (0, ">q", -1, "offset -1"),
        (57, ">i", 3, "3 records in 2 offsets"),
        (57, ">i", -1, "-1 records"),
        (23, ">i", -2, "in -1 offsets"),
        (57, ">i", 2**31 - 1, "2147483647 records"),
    ],
)
def test_what_no_broker_writes_is_refused(place: int, kind: str, value: int, said: str) -> None:
    batch = record_batch([b"a", b"b"])
    struct.pack_into(kind, batch, place, value)

    with pytest.raises(CorruptBatch, match=said):
        split_batches(memoryview(batch))


def test_offsets_that_go_back_are_refused() -> None:
    log = record_batch([b"a", b"b"], base_offset=4) + record_batch([b"c"], base_offset=5)

    with pytest.raises(CorruptBatch, match=r"base offset 5, .* ends with offset 5"):
        split_batches(memoryview(log))
