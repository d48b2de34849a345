"""Reads the records of a batch of any magic, and writes records into batches of magic 2.

A record is copied unchanged except for its offset and timestamp, which are relative to its batch.
Key, value and headers together are its ``content``.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.kafka.wire.batches import HEADER_BYTES, Batch, split_batches
from headrace.kafka.wire.compression import Content, compress, decompress
from headrace.kafka.wire.errors import CorruptBatch
from headrace.kafka.wire.schemas import read_varint, varint

# Messages of magic 0 and 1, which topics created before Kafka 0.11 may still contain. A compressed
# set is a message whose value is the set. The format is in Kafka's documentation, "Old Message
# Format".

_OLD_CODECS = ("none", "gzip", "snappy", "lz4")
_OVERHEAD = struct.Struct(">qi")  # offset, length
_CHECKSUM, _TIMESTAMP, _LENGTH = struct.Struct(">Ibb"), struct.Struct(">q"), struct.Struct(">i")
_BROKEN_LZ4 = b"\x04\x22\x4d\x18\x60\x40"  # magic 0 follows it with a wrong checksum

_Old = tuple[int, int, Content | None, Content | None]
"""Offset, timestamp in ms, key and value."""


def old_records(batch: Batch, limit_bytes: int) -> Iterator[_Old]:
    """Yield the records of a message in the old format, or of the message set that it wraps.

    Raise ``CorruptBatch`` or ``UnreadableBatch``.
    """
    try:
        yield from _messages(batch.data, batch.base_offset, limit_bytes)
    except struct.error as error:
        raise CorruptBatch(f"a message at offset {batch.base_offset}: {error}") from None


def _messages(data: memoryview, last_offset: int, limit_bytes: int) -> Iterator[_Old]:
    magic, attributes, timestamp, key, value = _message(data[_OVERHEAD.size :], last_offset)
    codec = attributes & 0x07
    if not codec:
        yield last_offset, timestamp, key, value
        return
    if value is None or codec >= len(_OLD_CODECS):
        raise CorruptBatch(f"the message set at offset {last_offset} has codec {codec}")
    if magic == 0 and bytes(value[: len(_BROKEN_LZ4)]) == _BROKEN_LZ4:
        value = memoryview(_BROKEN_LZ4 + b"\x82" + value[len(_BROKEN_LZ4) + 1 :])
    inner = memoryview(decompress(_OLD_CODECS[codec], value, limit_bytes))
    places = list(_split(inner, last_offset))
    # In magic 1, inner offsets start at 0, and the outer message has the offset of the last record.
    # In magic 0, inner offsets are absolute.
    shift = last_offset - places[-1][0] if magic and places else 0
    before = -1
    for offset, message in places:
        _, own, own_timestamp, key, value = _message(message, last_offset)
        if own & 0x07 or not before < offset + shift <= last_offset:
            raise CorruptBatch(f"the message set at offset {last_offset} is not one")
        before = offset + shift
        yield before, timestamp if attributes & 0x08 else own_timestamp, key, value


def _split(inner: memoryview, last_offset: int) -> Iterator[tuple[int, memoryview]]:
    place = 0
    while place < len(inner):
        offset, length = _OVERHEAD.unpack_from(inner, place)
        place += _OVERHEAD.size
        if not 14 <= length <= len(inner) - place:
            raise CorruptBatch(f"the set at offset {last_offset} has a message of {length} bytes")
        yield offset, inner[place : place + length]
        place += length


def _message(
    message: memoryview, offset: int
) -> tuple[int, int, int, memoryview | None, memoryview | None]:
    """Return magic, attributes, timestamp, key and value of a message after checking them."""
    checksum, magic, attributes = _CHECKSUM.unpack_from(message)
    if zlib.crc32(message[4:]) != checksum:
        raise CorruptBatch(f"the checksum of the message at offset {offset} is wrong")
    place, timestamp = _CHECKSUM.size, -1
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(message, place)
        place += _TIMESTAMP.size
    elif magic:
        raise CorruptBatch(f"the message at offset {offset} has magic {magic}")
    key, place = _field(message, place, offset)
    value, place = _field(message, place, offset)
    if place != len(message):
        raise CorruptBatch(f"the message at offset {offset} is {len(message) - place} bytes longer")
    return magic, attributes, timestamp, key, value


def _field(message: memoryview, place: int, offset: int) -> tuple[memoryview | None, int]:
    (size,) = _LENGTH.unpack_from(message, place)
    place += _LENGTH.size
    if size < 0:
        return None, place
    if size > len(message) - place:
        raise CorruptBatch(f"the message at offset {offset} claims {size} bytes")
    return message[place : place + size], place + size


LIMIT_BYTES = 128 << 20
"""Default limit of a batch's decompressed records.

By default, brokers accept 1 MiB of compressed records. To exceed the limit, the records must be
compressed to less than a hundredth, as only text of one repeated letter is.
"""
_MIN_BYTES = 7  # length, attributes, two deltas, key, value, headers
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NO_HEADERS = b"\0"


class StoredRecord(NamedTuple):
    """A record, not decoded."""

    offset: int
    timestamp_ms: int
    """Unix time in ms, or -1 if the record has no timestamp."""
    content: Content
    """Key, value and headers in the format of magic 2."""


Headers = tuple[tuple[str, bytes | None], ...]


class Decoded(NamedTuple):
    """A decoded record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def stored_records(batch: Batch, *, limit_bytes: int = LIMIT_BYTES) -> Iterator[StoredRecord]:
    """Yield the records of a batch of any magic, in order. They are valid as long as the batch.

    Needs at most ``limit_bytes`` of memory, or twice that for magic 0 and 1. Raise ``CorruptBatch``
    or ``UnreadableBatch``, possibly after some records.
    """
    if batch.magic < 2:
        for offset, timestamp_ms, key, value in old_records(batch, limit_bytes):
            content = b"".join((_sized(key), _sized(value), _NO_HEADERS))
            yield StoredRecord(offset, timestamp_ms, content)
        return
    if not batch.intact:
        raise CorruptBatch(f"the checksum of the batch at offset {batch.base_offset} is wrong")
    plain = memoryview(decompress(batch.codec, batch.data[HEADER_BYTES:], limit_bytes))
    if batch.record_count * _MIN_BYTES > len(plain):
        raise _damaged(batch, f"{batch.record_count} records in {len(plain)} bytes")
    try:
        yield from _records(batch, plain)
    except (IndexError, ValueError) as error:
        raise _damaged(batch, str(error)) from None


def _records(batch: Batch, content: memoryview) -> Iterator[StoredRecord]:
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    appended_ms = batch.max_timestamp if batch.log_append_time else None
    last_delta, most, place = -1, batch.last_offset_delta, 0
    for _ in range(batch.record_count):
        length, start = read_varint(content, place)
        end = start + length
        if length < 1 or end > len(content):
            raise ValueError(f"a record of {length} bytes at byte {place} of {len(content)}")
        timestamp_delta, place = read_varint(content, start + 1)
        delta, place = read_varint(content, place)
        if not last_delta < delta <= most or place > end:
            raise ValueError(f"offset {delta} follows {last_delta}, of {most}")
        timestamp_ms = base_timestamp + timestamp_delta if appended_ms is None else appended_ms
        yield StoredRecord(base_offset + delta, timestamp_ms, content[place:end])
        last_delta, place = delta, end
    if place != len(content):
        raise ValueError(f"{len(content) - place} bytes follow the last record")


def decoded(record: StoredRecord) -> Decoded:
    """Decode a record. Raise ``CorruptBatch`` if that fails."""
    content = memoryview(record.content)
    try:
        key, place = _read_sized(content, 0)
        value, place = _read_sized(content, place)
        headers = _read_headers(content, place)
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"the record at offset {record.offset}: {error}") from None
    return Decoded(record.offset, record.timestamp_ms, key, value, headers)


def with_headers(
    record: StoredRecord, change: Callable[[Headers], Headers | None]
) -> StoredRecord | None:
    """Return the record with changed headers, or None if ``change`` returns None.

    If ``change`` returns its argument, the result is ``record`` itself. Key and value are not
    decoded. Raise ``CorruptBatch`` if the headers cannot be read.
    """
    content = memoryview(record.content)
    try:
        place = _skip_sized(content, _skip_sized(content, 0))
        headers = _read_headers(content, place)
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"the record at offset {record.offset}: {error}") from None
    changed = change(headers)
    if changed is None:
        return None
    if changed is headers:
        return record
    return record._replace(content=bytes(content[:place]) + _encoded_headers(changed))


class BatchWriter:
    """Writes records into one batch of magic 2, with consecutive offsets."""

    def __init__(
        self, codec: str = "none", *, level: int | None = None, leader_epoch: int = -1
    ) -> None:
        """Start an empty batch.

        ``level`` is the codec's compression level, or None for its default. ``leader_epoch`` is the
        source's leader epoch, for readers of the batch before it is sent.
        """
        self._codec, self.level, self._leader_epoch = codec, level, leader_epoch
        self._content = bytearray()
        self._base_timestamp = self._max_timestamp = -1
        self.offsets = array("q")
        """Source offset of each record."""

    @property
    def size_bytes(self) -> int:
        """Uncompressed size of the batch."""
        return HEADER_BYTES + len(self._content)

    def add(self, record: StoredRecord) -> None:
        """Append a copy of the record."""
        timestamp_ms = record.timestamp_ms
        if not self.offsets:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        deltas = varint(timestamp_ms - self._base_timestamp) + varint(len(self.offsets))
        self._content += varint(1 + len(deltas) + len(record.content)) + b"\0" + deltas
        self._content += record.content
        self.offsets.append(record.offset)

    def finish(self) -> Batch:
        """Return the batch in new memory. Its ``base_offset`` is 0."""
        content = compress(self._codec, self._content, self.level)
        count = len(self.offsets)
        data = bytearray(HEADER_BYTES) + content
        attributes = _CODECS[self._codec]
        _HEADER.pack_into(
            data, 0, 0, len(data) - 12, self._leader_epoch, 2, 0, attributes, count - 1,
            self._base_timestamp, self._max_timestamp, -1, -1, -1, count,
        )  # fmt: skip
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        [batch] = split_batches(memoryview(data)).batches
        return batch


def encoded(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> StoredRecord:
    """Return an undecoded record."""
    content = b"".join((_sized(key), _sized(value), _encoded_headers(headers)))
    return StoredRecord(offset, timestamp_ms, content)


def _encoded_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        parts += [_sized(name.encode(errors="surrogateescape")), _sized(value)]
    return b"".join(parts)


def _sized(content: Content | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + bytes(content)


def _read_sized(content: memoryview, place: int) -> tuple[bytes | None, int]:
    size, place = read_varint(content, place)
    if size < 0:
        return None, place
    if size > len(content) - place:
        raise ValueError(f"{size} bytes at byte {place} of {len(content)}")
    return bytes(content[place : place + size]), place + size


def _skip_sized(content: memoryview, place: int) -> int:
    size, place = read_varint(content, place)
    end = place + max(0, size)
    if end > len(content):
        raise ValueError(f"{size} bytes at byte {place} of {len(content)}")
    return end


def _read_headers(content: memoryview, place: int) -> Headers:
    """Read the headers, which are the end of the record."""
    count, place = read_varint(content, place)
    if not 0 <= count <= len(content):
        raise ValueError(f"{count} headers")
    headers = []
    for _ in range(count):
        name, place = _read_sized(content, place)
        header, place = _read_sized(content, place)
        headers.append(((name or b"").decode(errors="surrogateescape"), header))
    if place != len(content):
        raise ValueError(f"{len(content) - place} bytes too many")
    return tuple(headers)


def _damaged(batch: Batch, why: str) -> CorruptBatch:
    return CorruptBatch(f"the batch at offset {batch.base_offset} cannot be read: {why}")
