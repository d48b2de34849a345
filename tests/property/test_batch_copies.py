"""For any content of a batch, the target gets the same records."""

import struct
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from support.stored import (
    CODECS,
    batches_of,
    content,
    log_batch,
    marker,
    message,
    message_set,
    sealed,
)

from headrace.datapath.chunk import Passage, judged
from headrace.datapath.rebuild import halves, rebuilt
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    Batch,
    CorruptBatch,
    Decoded,
    ProducerIdentity,
    StoredRecord,
    UnreadableBatch,
    decoded,
    split_batches,
    stamped,
    stored_records,
)
from headrace.kafka.wire.compression import compress, decompress

PRODUCER = ProducerIdentity(2**40, 9)
blobs = st.none() | st.binary(max_size=200) | st.binary(max_size=8).map(lambda part: part * 2_000)
timestamps = st.integers(-1, 3) | st.integers(1_700_000_000_000, 1_800_000_000_000)
headers = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3)
contents = st.builds(content, blobs, blobs, headers)
codecs = st.sampled_from(CODECS)


@st.composite
def compacted(draw: st.DrawFn, *, gaps: int = 5) -> bytearray:
    """Draw a batch of a log, perhaps with holes, stamped by the broker, with a delete horizon."""
    offset = first = draw(st.integers(0, 2**40))
    offset += draw(st.integers(0, gaps))
    records = []
    for record in draw(st.lists(contents, min_size=1, max_size=12)):
        records.append(StoredRecord(offset, draw(timestamps), record))
        offset += 1 + draw(st.integers(0, gaps))
    return log_batch(
        records,
        codec=draw(codecs),
        base_offset=first,
        last_offset=offset - 1,
        base_timestamp=draw(timestamps),
        attributes=draw(st.sampled_from([0, 0x08, 0x10, 0x40, 0x50])),
        producer_id=draw(st.sampled_from([-1, 5, 2**62])),
        leader_epoch=draw(st.integers(0, 9)),
    )


def records_of(batch: Batch) -> list[Decoded]:
    return [decoded(record) for record in stored_records(batch)]


def on_target(outgoing: Outgoing, producer: ProducerIdentity = PRODUCER) -> Batch:
    """Return the batch that the target receives."""
    parts = stamped(outgoing.batch, producer, 17)
    [batch] = batches_of(parts.header, parts.records)
    return batch


def with_offsets(outgoing: Outgoing) -> list[Decoded]:
    """Return the written records with the source offsets that ``outgoing`` reports."""
    return [
        record._replace(offset=outgoing.source_offset(index))
        for index, record in enumerate(records_of(on_target(outgoing)))
    ]


def nothing() -> None: ...


@given(compacted(gaps=0), st.booleans())
def test_a_copied_batch_has_the_records_of_its_source(
    stored: bytearray, transactional: bool
) -> None:
    [batch] = batches_of(stored)
    before = bytes(stored)
    producer = replace(PRODUCER, transactional=transactional)
    copy = on_target(Outgoing(batch, batch.last_offset + 1, nothing), producer)

    assert copy.intact
    assert (copy.base_offset, copy.leader_epoch, copy.base_sequence) == (0, -1, 17)
    assert (copy.producer_id, copy.producer_epoch) == (PRODUCER.producer_id, PRODUCER.epoch)
    assert copy.attributes == batch.attributes & 0x0F | 0x10 * transactional
    assert copy.data[61:] == batch.data[61:]
    assert copy.data[23:43] == batch.data[23:43]
    assert copy.record_count == batch.record_count
    assert bytes(batch.data) == before


@given(compacted(gaps=0), st.data())
def test_damage_stays_visible(stored: bytearray, data: st.DataObject) -> None:
    place = data.draw(st.integers(57, len(stored) - 1))
    stored[place] ^= data.draw(st.integers(1, 255))
    struct.pack_into(">i", stored, 57, 1)  # otherwise it is rejected for its number of records
    [batch] = batches_of(stored)
    if batch.intact:
        return  # only that number was changed, and changed back
    parts = stamped(batch, PRODUCER, 17)
    (checksum,) = struct.unpack_from(">I", parts.header, 17)
    [copy] = batches_of(parts.header, parts.records)

    assert checksum == copy.crc
    assert not copy.intact


@given(compacted(), st.data())
def test_a_rebuilt_batch_has_the_records_of_its_source(
    stored: bytearray, data: st.DataObject
) -> None:
    [batch] = batches_of(stored)
    expected = records_of(batch)
    start = data.draw(st.integers(batch.base_offset, expected[-1].offset))
    most = data.draw(st.none() | st.integers(1, 4))
    released: list[bool] = []
    new = rebuilt(
        [batch], start=start, release=lambda: released.append(True), most_records=most
    ).outgoing

    assert released == [True]
    stored[:] = bytes(len(stored))  # their memory is their own
    assert [one for part in new for one in with_offsets(part)] == [
        record for record in expected if record.offset >= start
    ]
    for part in new:
        copy = on_target(part)
        assert copy.intact
        assert copy.codec == batch.codec
        assert not copy.log_append_time
        assert copy.record_count == copy.last_offset_delta + 1 <= (most or 12)
        assert part.leader_epoch == batch.leader_epoch
        assert part.max_timestamp_ms == max(one.timestamp_ms for one in records_of(copy))
    assert [part.next_offset for part in new[:-1]] <= [part.first_offset for part in new[1:]]
    assert new[-1].next_offset == batch.last_offset + 1


@given(st.lists(contents, min_size=2, max_size=9), codecs, st.booleans())
def test_halves_are_the_whole(contents: list[bytes], codec: str, rebuild: bool) -> None:
    records = [StoredRecord(100 + 2 * place, place, one) for place, one in enumerate(contents)]
    if not rebuild:
        records = [record._replace(offset=100 + place) for place, record in enumerate(records)]
    [batch] = batches_of(log_batch(records, codec=codec))
    whole = Outgoing(batch, 500, nothing)
    if rebuild:
        [whole] = rebuilt([batch], start=0, release=nothing).outgoing
    expected = with_offsets(whole)

    first, second = halves(whole)

    assert with_offsets(first) + with_offsets(second) == expected
    assert first.next_offset <= second.first_offset
    assert second.next_offset == whole.next_offset


@given(st.lists(contents, min_size=1, max_size=9))
def test_kio_reads_the_same(contents: list[bytes]) -> None:
    [batch] = batches_of(log_batch([StoredRecord(5 + n, n, one) for n, one in enumerate(contents)]))
    [new] = rebuilt([batch], start=0, release=nothing).outgoing
    theirs, _ = read_batch(bytes(new.batch.data), 0)

    assert [
        (one.key, one.value, [(header.key, header.value) for header in one.headers])
        for one in theirs.records
    ] == [
        (
            one.key,
            one.value,
            [(key.encode(errors="surrogateescape"), value) for key, value in one.headers],
        )
        for one in records_of(new.batch)
    ]


old_fields = st.none() | st.binary(max_size=50)


@given(
    st.lists(st.tuples(st.integers(0, 3), timestamps, old_fields, old_fields), min_size=1),
    st.sampled_from(CODECS[:4]),
    st.sampled_from([0, 1]),
    st.none() | st.integers(0, 9),
)
def test_old_messages_keep_what_they_hold(
    steps: list[tuple[int, int, bytes | None, bytes | None]],
    codec: str,
    magic: int,
    appended_ms: int | None,
) -> None:
    appended_ms = appended_ms if magic else None
    offset, records = 50, []
    for step, timestamp_ms, key, value in steps:
        offset += 1 + step
        records.append((offset, timestamp_ms if magic else -1, key, value))
    if codec == "none":
        appended_ms = None
        parts = [
            message(offset, key, value, magic=magic, timestamp_ms=timestamp_ms)
            for offset, timestamp_ms, key, value in records
        ]
    else:
        parts = [message_set(records, codec, magic=magic, appended_ms=appended_ms)]
    batches = batches_of(*parts)
    new = rebuilt(batches, start=51, release=nothing).outgoing

    assert [one for part in new for one in with_offsets(part)] == [
        Decoded(offset, timestamp_ms if appended_ms is None else appended_ms, key, value, ())
        for offset, timestamp_ms, key, value in records
    ]
    assert new[-1].next_offset == offset + 1
    assert all(part.leader_epoch == -1 for part in new)


def harm(content: bytes | bytearray, changes: Sequence[tuple[int, int]]) -> bytearray:
    changed = bytearray(content)
    for place, value in changes:
        changed[place % len(changed)] = value
    return changed


changes = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=8)
LIMIT_BYTES = 1 << 18


def read_all(data: bytearray) -> None:
    """Read all records, and accept only our own errors and records inside their batch."""
    try:
        batches = split_batches(memoryview(data)).batches
        for batch in batches:
            for record in stored_records(batch, limit_bytes=LIMIT_BYTES):
                decoded(record)
                assert record.offset <= batch.last_offset
        for batch in batches:
            rebuilt([batch], start=0, release=nothing)
    except (CorruptBatch, UnreadableBatch):
        return


@given(compacted(), changes, st.integers(0, 3))
def test_hostile_batches_are_refused(stored: bytearray, bad: Any, cut: int) -> None:
    harmed = harm(stored, bad)[: len(stored) - cut]
    read_all(harmed)
    if len(harmed) > 61:
        harmed[16] = 2
        read_all(sealed(harmed))  # any sender can seal a checksum


@given(changes, st.sampled_from(CODECS[:4]), st.sampled_from([0, 1]))
def test_hostile_messages_are_refused(bad: Any, codec: str, magic: int) -> None:
    inside = message_set([(5, 6, b"k", b"v"), (6, 7, None, b"w")], "none", magic=magic)[12 + 18 :]
    harmed = bytes(harm(inside, bad))
    read_all(
        message(
            6, None, bytes(compress(codec, harmed)), magic=magic, attributes=CODECS.index(codec)
        )
    )


@given(codecs, st.binary(max_size=500) | st.binary(max_size=30).map(lambda part: part * 5_000))
def test_codecs_give_back_what_they_took(codec: str, plain: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, plain), 1 << 20)) == plain


@given(codecs, st.binary(max_size=300), changes)
def test_codecs_refuse_what_is_none(codec: str, plain: bytes, bad: Any) -> None:
    packed = bytes(compress(codec, plain)) or b"\0"
    for hostile in (bytes(harm(packed, bad)), plain):
        try:
            assert len(decompress(codec, hostile, 4096)) <= 4096
        except (CorruptBatch, UnreadableBatch):
            continue


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_takes_no_more_than_the_limit(codec: str) -> None:
    limit_bytes, packed = 1 << 20, bytes(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableBatch, match="1048576 bytes"):
            decompress(codec, packed, limit_bytes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit_bytes


@st.composite
def transactions(draw: st.DrawFn) -> tuple[bytearray, list[tuple[int, int]], list[int]]:
    """Draw a log, its aborted transactions, and the offsets of the committed records."""
    log, aborted, committed = bytearray(), [], []
    opened: dict[int, list[int]] = {}
    offset = 0
    for _ in range(draw(st.integers(1, 25))):
        producer = draw(st.sampled_from([-1, 10, 11, 12]))
        if producer in opened and draw(st.booleans()):
            commit = draw(st.booleans())
            offsets = opened.pop(producer)
            committed += offsets if commit else []
            if not commit and offsets:
                aborted.append((producer, offsets[0]))
            log += marker(offset, producer, commit=commit)
            offset += 1
            continue
        count = draw(st.integers(1, 3))
        offsets = list(range(offset, offset + count))
        records = [StoredRecord(one, 0, content(None, b"v")) for one in offsets]
        in_transaction = producer > 0
        log += log_batch(records, producer_id=producer, attributes=0x10 * in_transaction)
        if in_transaction:
            opened.setdefault(producer, []).extend(offsets)
        else:
            committed += offsets
        offset += count
    for offsets in opened.values():
        committed += offsets  # a response ends before an open transaction, which is not judged here
    return log, aborted, sorted(committed)


@given(transactions(), st.data())
def test_committed_records_pass_and_no_others(
    scene: tuple[bytearray, list[tuple[int, int]], list[int]], data: st.DataObject
) -> None:
    log, aborted, committed = scene
    shuffled = data.draw(st.permutations(aborted))
    passed = [
        offset
        for one in judged(batches_of(log), start=0, aborted=shuffled)
        if one.passage is Passage.COPY
        for offset in range(one.batch.base_offset, one.batch.last_offset + 1)
    ]

    assert passed == committed


def test_errors_belong_to_the_hierarchy() -> None:
    kinds: list[Callable[[str], Exception]] = [CorruptBatch, UnreadableBatch]
    assert all(isinstance(kind("why"), HeadraceError) for kind in kinds)
