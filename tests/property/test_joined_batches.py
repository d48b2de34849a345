"""Batches made one by the helper in C: the same records, and never a byte that is not theirs."""

import ctypes
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.join_helper import compiled
from support.stored import batches_of, content, log_batch, sealed

from headrace.kafka.wire import (
    Batch,
    CorruptBatch,
    Decoded,
    Stored,
    decoded,
    joined,
    joined_bytes,
    split_batches,
    stored_records,
)

blobs = st.none() | st.binary(max_size=200) | st.binary(max_size=8).map(lambda part: part * 2_000)
timestamps = st.integers(-1, 3) | st.integers(1_700_000_000_000, 1_800_000_000_000)
headers = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3)
contents = st.builds(content, blobs, blobs, headers)
SHORT = st.just(content(b"k", b"v"))  # many of them: offset deltas of two bytes


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    """Batches that follow each other without a gap."""
    offset = draw(st.integers(0, 2**40))
    log = []
    some = st.lists(contents, min_size=1, max_size=4) | st.lists(SHORT, min_size=1, max_size=90)
    for records in draw(st.lists(some, min_size=1, max_size=4)):
        base, timestamp_ms = draw(timestamps), draw(timestamps)
        stored = [Stored(offset + n, timestamp_ms - n % 3, one) for n, one in enumerate(records)]
        log.append(log_batch(stored, base_timestamp=base))
        offset += len(records)
    return log


def together(batches: Sequence[Batch]) -> Batch | None:
    return joined(compiled(), batches, bytearray(joined_bytes(batches)))


def records(batches: Sequence[Batch]) -> list[Decoded]:
    return [decoded(record) for batch in batches for record in stored_records(batch)]


@given(logs())
def test_one_batch_has_the_records_of_all(log: list[bytearray]) -> None:
    batches = batches_of(*log)

    one = together(batches)

    assert one is not None
    assert split_batches(one.data).batches == [one]
    assert records([one]) == records(batches)
    assert (one.base_offset, one.last_offset) == (batches[0].base_offset, batches[-1].last_offset)
    assert one.max_timestamp == max(record.timestamp_ms for record in records(batches))


@given(logs(), st.data())
def test_bytes_that_no_broker_writes_are_refused_or_read_as_python_reads_them(
    log: list[bytearray], data: st.DataObject
) -> None:
    damaged = data.draw(st.sampled_from(log))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(61, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    batches = batches_of(*(bytes(sealed(one)) for one in log))

    if (one := together(batches)) is not None:
        assert list(stored_records(one)) == [
            record for batch in batches for record in stored_records(batch)
        ]


def test_a_wrong_checksum_is_refused() -> None:
    log = [log_batch([Stored(n, 5, content(b"k", b"v"))]) for n in range(3)]
    log[1][-2] ^= 1

    assert together(batches_of(*log)) is None


@pytest.mark.parametrize("missing", [1, 40, 200])
def test_a_buffer_that_is_too_small_is_not_written_beyond(missing: int) -> None:
    batches = batches_of(log_batch([Stored(n, 5, content(b"k", b"v" * 40)) for n in range(9)]))
    source = bytearray(batches[0].data)
    out = bytearray(b"\xaa" * 1000)
    found = (ctypes.c_int64 * 2)()

    def call(out_bytes: int) -> int:
        one, other = (ctypes.c_char.from_buffer(memory) for memory in (source, out))
        return compiled()(
            ctypes.addressof(one), len(source), 1, ctypes.addressof(other), out_bytes,
            ctypes.addressof(found),
        )  # fmt: skip

    size = call(len(out))
    assert size == batches[0].payload_bytes
    out[:] = b"\xaa" * 1000
    assert call(size - missing) == -1
    assert out[size - missing :] == b"\xaa" * (1000 - size + missing)


def test_python_refuses_what_the_other_tests_rely_on() -> None:
    """``stored_records`` is the one that both are compared with."""
    damaged = sealed(log_batch([Stored(0, 5, content(b"k", b"v"))])[:-1])

    with pytest.raises(CorruptBatch):
        list(stored_records(*batches_of(damaged)))
    assert together(batches_of(damaged)) is None
