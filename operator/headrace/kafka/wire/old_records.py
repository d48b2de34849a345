"""Messages of magic 0 and 1, which topics from before Kafka 0.11 still hold.

A compressed set is a message whose value is the set. Format: Kafka's documentation, "Old Message
Format".
"""

import struct
import zlib
from collections.abc import Iterator

from headrace.kafka.wire.batches import Batch
from headrace.kafka.wire.compression import Content, decompress
from headrace.kafka.wire.errors import CorruptBatch

_CODECS = ("none", "gzip", "snappy", "lz4")
_OVERHEAD = struct.Struct(">qi")  # offset, length
_CHECKSUM, _TIMESTAMP, _LENGTH = struct.Struct(">Ibb"), struct.Struct(">q"), struct.Struct(">i")
_BROKEN_LZ4 = b"\x04\x22\x4d\x18\x60\x40"  # with a wrong checksum after it, in magic 0

_Old = tuple[int, int, Content | None, Content | None]
"""Offset, timestamp in ms, key, value."""


def old_records(batch: Batch, limit_bytes: int) -> Iterator[_Old]:
    """Yield the records of one message, or of the set in it.

    Raise ``CorruptBatch``, ``UnreadableBatch``.
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
    if value is None or codec >= len(_CODECS):
        raise CorruptBatch(f"the message set at offset {last_offset} has codec {codec}")
    if magic == 0 and bytes(value[: len(_BROKEN_LZ4)]) == _BROKEN_LZ4:
        value = memoryview(_BROKEN_LZ4 + b"\x82" + value[len(_BROKEN_LZ4) + 1 :])
    inner = memoryview(decompress(_CODECS[codec], value, limit_bytes))
    places = list(_split(inner, last_offset))
    # Magic 1 counts from 0, and the outer message has the offset of the last; magic 0 has its own.
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
    """Magic, attributes, timestamp, key, value; checked."""
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
