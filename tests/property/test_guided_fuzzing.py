"""Responses that are changed byte by byte, guided by the lines that they reach.

A response that takes a new path through the reading code is changed further. hypothesis draws each
input independently, while this search finds code behind several conditions at once. Set another
seed and more runs with HEADRACE_FUZZ_SEED and HEADRACE_FUZZ_RUNS.
"""

import os
import random
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from crc32c import crc32c
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import response as fetch
from kio.static.primitive import Records, i32, i64
from support.batches import encoded
from support.fake_broker import NOT_THROTTLED, TOPIC_ID
from support.join_helper import compiled
from support.stored import CODECS, content, log_batch, marker, message, message_set

from headrace.kafka import wire
from headrace.kafka.wire import (
    Batch,
    Buffers,
    CorruptBatch,
    Decoded,
    Garbled,
    StoredRecord,
    UnreadableBatch,
    aborts,
    decoded,
    fetch_call,
    joined,
    split_batches,
    stored_records,
)
from headrace.kafka.wire.frames import Frame

RUNS = int(os.environ.get("HEADRACE_FUZZ_RUNS", "5000"))
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "1"))
FOLDER = str(Path(wire.__file__).parent)
Way = set[tuple[str, int, int]]
HOSTILE = [b"\xff" * 5, b"\x80" * 9, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0" * 4]
HOSTILE.append(b"\xff\xff\xff\x0f")  # a varint


def records(count: int) -> list[StoredRecord]:
    return [
        StoredRecord(n, 1_790_000_000_000 + n, content(b"k%d" % n, b"v" * n)) for n in range(count)
    ]


def response(log: bytes) -> bytes:
    """Return a response with one partition that contains this log."""
    partition = fetch.PartitionData(
        partition_index=i32(3),
        error_code=ErrorCode.none,
        high_watermark=i64(9),
        last_stable_offset=i64(9),
        aborted_transactions=(),
        records=Records(log),
    )
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,))
    return encoded(
        fetch.FetchResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.none,
            session_id=i32(7),
            responses=(topic,),
        )
    )


def seeds() -> list[bytes]:
    logs = [bytes(log_batch(records(5), codec=codec)) for codec in CODECS]
    logs.append(bytes(marker(5, 7, commit=False)))
    logs += [bytes(message(3, b"k", b"v", magic=magic)) for magic in (0, 1)]
    old = [(n, 5, b"k", b"v") for n in range(3)]
    logs += [bytes(message_set(old, codec, magic=1)) for codec in ("gzip", "snappy", "lz4")]
    logs.append(
        bytes(log_batch(records(3))) + bytes(log_batch([StoredRecord(3, 5, content(b"", None))]))
    )
    return [response(log) for log in logs]


def read(sent: bytes) -> None:
    """Run all code that reads a broker's response. It may only raise our own errors."""
    buffer = bytearray(sent)
    try:
        answered = fetch_call([]).encode(13).read(Frame(Buffers(), buffer, len(buffer)), 0)
    except Garbled:
        return
    for partition in answered.partitions:
        try:
            batches = split_batches(partition.records).batches
        except CorruptBatch:
            continue
        for batch in batches:
            read_batch(sealed(batch))


def sealed(batch: Batch) -> Batch:
    """Return the batch with a matching checksum, because readers check that first."""
    if batch.magic < 2:
        return batch
    data = memoryview(bytearray(batch.data))
    checksum = crc32c(data[21:])
    struct.pack_into(">I", data, 17, checksum)
    return batch._replace(crc=checksum, data=data)


def read_batch(batch: Batch) -> None:
    try:
        found = list(map(decoded, stored_records(batch, limit_bytes=1 << 20)))
        if batch.magic == 2 and batch.control:
            aborts(batch)
    except (CorruptBatch, UnreadableBatch):
        return
    plain = batch.magic == 2 and not batch.attributes and batch.record_count > 0
    if plain and batch.record_count == batch.last_offset_delta + 1:
        joined_twice(batch, found)


def joined_twice(batch: Batch, found: list[Decoded]) -> None:
    """Join the batch with a following copy of itself, and check the result."""
    after = bytearray(batch.data)
    offset = batch.last_offset + 1
    if not 0 <= batch.base_offset <= 1 << 62 or len(after) > 64 << 10:
        return
    struct.pack_into(">q", after, 0, offset)
    log = memoryview(bytearray(batch.data) + after)
    into = bytearray(2 * len(log) + 9 * batch.record_count)
    one = joined(compiled(), log, batch.base_offset, 1 << 30, into)
    if one is None:
        times = [batch.base_timestamp, *(each.timestamp_ms for each in found)]
        assert max(map(abs, times)) >= 1 << 62, "no time of this world"
        return
    assert (one.batches, one.size) == (2, len(log))
    records = list(map(decoded, stored_records(one.batch)))
    assert records[: len(found)] == found
    assert records[len(found) :] == [
        each._replace(offset=each.offset + batch.record_count) for each in found
    ]


@contextmanager
def watched(way: Way) -> Iterator[None]:
    """Record the order in which lines of the client run."""
    before = sys.gettrace()
    last = 0

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal last
        if event == "line":
            way.add((frame.f_code.co_filename, last, frame.f_lineno))
            last = frame.f_lineno
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(FOLDER) else None

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


def changed(sent: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Apply one to four small changes."""
    made = bytearray(sent)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) or 1)
        match chance.randrange(6):
            case 0 if made:
                made[at] ^= 1 << chance.randrange(8)
            case 1 if made:
                made[at] = chance.randrange(256)
            case 2:
                some = chance.choice(HOSTILE)
                made[at : at + len(some)] = some
            case 3:
                del made[at : at + chance.randint(1, 8)]
            case 4:
                made[at:at] = made[at : at + chance.randint(1, 16)]
            case _:
                other = chance.choice(others)
                made[at:] = other[chance.randrange(len(other) or 1) :]
    return bytes(made)


def fuzzed(runs: int, seed: int, read: Callable[[bytes], None]) -> tuple[Way, Way]:
    """Return the paths that the seeds take and all paths that were found."""
    chance, corpus, seen = random.Random(seed), seeds(), set[tuple[str, int, int]]()
    for one in corpus:
        with watched(seen):
            read(one)
    first = set(seen)
    for _ in range(runs):
        sent = changed(chance.choice(corpus), corpus, chance)
        way: Way = set()
        try:
            with watched(way):
                read(sent)
        except Exception as error:
            error.add_note(f"sent: {sent!r}")
            raise
        if not way <= seen:
            seen |= way
            corpus.append(sent)
    return first, seen


def test_whatever_a_broker_sends_is_read_or_refused() -> None:
    first, seen = fuzzed(RUNS, SEED, read)

    assert len(seen) > 1.2 * len(first), "what was changed took no other way"


def test_an_error_that_is_not_ours_is_found_with_what_was_sent() -> None:
    """The error is behind a condition that no seed meets."""

    def careless(sent: bytes) -> None:
        if b"\xff\xff\xff\x0f" in sent:
            raise IndexError

    with pytest.raises(IndexError) as found:
        fuzzed(RUNS, SEED, careless)
    assert "sent: " in found.value.__notes__[0]
