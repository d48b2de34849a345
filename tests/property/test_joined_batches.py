"""Batches joined by the C helper: the same records, and no access to other memory."""

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.join_helper import compiled
from support.stored import batches_of, content, log_batch, marker, sealed

from headrace.kafka.wire import (
    Batch,
    CorruptBatch,
    Decoded,
    Joined,
    StoredRecord,
    decoded,
    joined,
    joined_bytes,
    split_batches,
    stored_records,
)

BY_TABLES = "-DBY_TABLES"
"""Compiler option that disables the processor's instruction for checksums."""
MOST_BYTES = 240 << 10
_NOTHING = 0  # PROT_NONE
# Four records of two large batches are fewer than a batch may have to be joined.
blobs = st.none() | st.binary(max_size=200) | st.binary(max_size=8).map(lambda part: part * 900)
timestamps = st.integers(-1, 3) | st.integers(1_700_000_000_000, 1_800_000_000_000)
headers = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3)
contents = st.builds(content, blobs, blobs, headers)
SHORT = st.just(content(b"k", b"v"))  # many of them: offset deltas of two bytes
helpers = st.sampled_from(["", BY_TABLES])


@st.composite
def logs(draw: st.DrawFn, least: int = 2) -> list[bytearray]:
    """Draw batches that follow each other without a gap."""
    offset = draw(st.integers(0, 2**40))
    log = []
    some = st.lists(contents, min_size=1, max_size=4) | st.lists(SHORT, min_size=1, max_size=90)
    for records in draw(st.lists(some, min_size=least, max_size=4)):
        base, timestamp_ms = draw(timestamps), draw(timestamps)
        stored = [
            StoredRecord(offset + n, timestamp_ms - n % 3, one) for n, one in enumerate(records)
        ]
        log.append(log_batch(stored, base_timestamp=base))
        offset += len(records)
    return log


def together(
    log: bytes, start: int = 0, most_bytes: int = MOST_BYTES, options: str = ""
) -> Joined | None:
    memory = memoryview(bytearray(log))
    into = bytearray(joined_bytes(memory, most_bytes))
    one = joined(compiled(options), memory, start, most_bytes, into)
    assert memory == log, "what was fetched has been changed"
    return one


def records(batches: Sequence[Batch]) -> list[Decoded]:
    return [decoded(record) for batch in batches for record in stored_records(batch)]


def check(one: Joined, batches: Sequence[Batch]) -> None:
    """Check that the joined batch equals the first of these batches."""
    sources = batches[: one.batches]
    assert one.size == sum(len(batch.data) for batch in sources)
    assert split_batches(one.batch.data).batches == [one.batch]
    assert records([one.batch]) == records(sources)
    assert (one.batch.base_offset, one.batch.last_offset) == (
        sources[0].base_offset,
        sources[-1].last_offset,
    )
    assert one.batch.leader_epoch == sources[0].leader_epoch
    assert one.batch.max_timestamp == max(record.timestamp_ms for record in records(sources))
    assert one.batch.producer_id == one.batch.base_sequence == -1


@given(logs(), helpers, st.binary(max_size=70))
def test_one_batch_has_the_records_of_all(log: list[bytearray], options: str, rest: bytes) -> None:
    one = together(b"".join(log) + rest, options=options)

    assert one is not None
    assert one.batches == len(log)
    check(one, batches_of(*log))


@given(logs(), helpers, st.integers(0, 2**40), st.integers(1, 9_000))
def test_it_is_made_of_the_first_ones_that_fit(
    log: list[bytearray], options: str, start: int, most_bytes: int
) -> None:
    batches = batches_of(*log)
    one = together(b"".join(log), start, most_bytes, options)

    fits = batches[0].payload_bytes + batches[1].payload_bytes <= most_bytes
    assert (one is not None) == (start <= batches[0].base_offset and fits)
    if one is not None:
        check(one, batches)
        assert sum(each.payload_bytes for each in batches[: one.batches]) <= most_bytes
        assert sum(each.payload_bytes for each in batches[: one.batches + 1]) > most_bytes or (
            one.batches == len(batches)
        )


SMALL = [StoredRecord(2, 5, content(b"k", b"v"))]


@pytest.mark.parametrize(
    "other",
    [
        log_batch([StoredRecord(2, 5, content(b"k", b"v" * 70_000))]),
        log_batch(SMALL, codec="gzip"),
        log_batch(SMALL, codec="zstd"),
        log_batch(SMALL, attributes=0x10, producer_id=7),
        log_batch(SMALL, attributes=0x08),
        log_batch(SMALL, attributes=0x40),
        log_batch(SMALL, attributes=0x4000),
        log_batch(SMALL, last_offset=3),
        log_batch(SMALL, leader_epoch=8),
        log_batch([], base_offset=2, last_offset=2),
        log_batch([StoredRecord(3, 5, content(b"k", b"v"))]),  # a gap before it
        log_batch([StoredRecord(1, 5, content(b"k", b"v"))]),  # the same offset again
        marker(2, 7, commit=True),
        log_batch(SMALL)[:-2],  # truncated
        log_batch(SMALL)[:30],
        sealed(log_batch(SMALL)[:-1]),  # contradicts itself
    ],
)
@pytest.mark.parametrize("before", [1, 2])
def test_any_other_ends_a_run(other: bytearray, before: int) -> None:
    log = [log_batch([StoredRecord(n, 5, content(b"k", b"v"))]) for n in range(2 - before, 2)]
    behind = log_batch([StoredRecord(4, 5, content(b"k", b"v"))])

    one = together(b"".join([*log, other, behind]))

    assert (None if one is None else one.batches) == (None if before == 1 else 2)


@given(logs(), st.data(), helpers)
def test_a_wrong_checksum_is_never_taken(
    log: list[bytearray], data: st.DataObject, options: str
) -> None:
    number = data.draw(st.integers(0, len(log) - 1))
    place = data.draw(st.integers(17, len(log[number]) - 1))
    log[number][place] ^= data.draw(st.integers(1, 255))

    one = together(b"".join(log), options=options)

    assert one is None or one.batches <= number


@given(logs(), st.data())
def test_bytes_that_no_broker_writes_are_refused_or_read_as_python_reads_them(
    log: list[bytearray], data: st.DataObject
) -> None:
    damaged = data.draw(st.sampled_from(log))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(12, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    whole = b"".join(bytes(sealed(one)) for one in log)

    if (one := together(whole)) is not None:
        sources = split_batches(memoryview(whole)[: one.size]).batches
        assert len(sources) == one.batches
        assert list(stored_records(one.batch)) == [
            record for batch in sources for record in stored_records(batch)
        ]


@given(st.just(b"") | st.binary(max_size=400), logs(), st.data())
def test_hostile_bytes_end_nowhere_else(
    junk: bytes, log: list[bytearray], data: st.DataObject
) -> None:
    """Both memories end at a page that must not be touched."""
    whole = bytearray(b"".join(log))
    place = data.draw(st.integers(0, len(whole)))
    whole[place : place + len(junk)] = junk
    cut = data.draw(st.integers(0, 60) | st.integers(0, len(whole)))
    whole = whole[: max(0, len(whole) - cut)]
    out_bytes = data.draw(st.integers(0, 2 * len(whole) + 100))
    taken = (ctypes.c_int64 * 2)()
    with guarded(len(whole)) as source, guarded(out_bytes) as out:
        ctypes.memmove(source, bytes(whole), len(whole))
        size = compiled()(
            source, len(whole), 0, 64 << 10, MOST_BYTES, out, out_bytes, ctypes.addressof(taken)
        )
        made = ctypes.string_at(out, max(size, 0))
    assert 0 <= size <= out_bytes
    if size:
        [new] = batches_of(made)
        sources = split_batches(memoryview(whole)[: taken[1]]).batches
        check(Joined(new, taken[0], taken[1]), sources)


@contextmanager
def guarded(size: int) -> Iterator[int]:
    """Yield the address of ``size`` bytes before a page that kills a process which touches it."""
    page = mmap.PAGESIZE
    whole = -(-size // page) * page
    memory = mmap.mmap(-1, whole + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + whole), page, _NOTHING) == 0
    try:
        yield start + whole - size
    finally:
        libc.mprotect(ctypes.c_void_p(start + whole), page, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("missing", [0, 1, 40, 200])
def test_a_buffer_that_is_too_small_takes_fewer(missing: int) -> None:
    log = [log_batch([StoredRecord(n, 5, content(b"k", b"v" * 40))]) for n in range(9)]
    whole = memoryview(bytearray(b"".join(log)))
    into = bytearray(b"\xaa" * 1000)
    all_ = joined(compiled(), whole, 0, MOST_BYTES, into)
    assert all_ is not None
    size = len(all_.batch.data)
    into[:] = b"\xaa" * 1000
    one = joined(compiled(), whole, 0, MOST_BYTES, into[: size - missing])
    assert one is not None
    assert one.batches == 9 - -(-missing // 48)  # bytes of a record
    check(one, batches_of(*log))


def test_python_refuses_what_the_other_tests_rely_on() -> None:
    """Both are compared with ``stored_records``."""
    damaged = sealed(log_batch([StoredRecord(0, 5, content(b"k", b"v"))])[:-1])

    with pytest.raises(CorruptBatch):
        list(stored_records(*batches_of(damaged)))
