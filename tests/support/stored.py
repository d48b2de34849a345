"""Batches as a log has them: compacted, stamped by the broker, of old formats, in transactions."""

import struct
import zlib
from collections.abc import Sequence

from crc32c import crc32c

from headrace.kafka.wire import Batch, StoredRecord, split_batches
from headrace.kafka.wire.compression import compress
from headrace.kafka.wire.schemas import varint

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_HEADER = struct.Struct(">qiibIhiqqqhii")


def content(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]] = ()
) -> bytes:
    """Return the content of a record of magic 2."""
    parts = [_sized(key), _sized(value), varint(len(headers))]
    parts += [_sized(part) for header in headers for part in header]
    return b"".join(parts)


def log_batch(
    records: Sequence[StoredRecord],
    *,
    codec: str = "none",
    base_offset: int | None = None,
    last_offset: int | None = None,
    base_timestamp: int = 0,
    max_timestamp: int | None = None,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = 0,
    leader_epoch: int = 7,
) -> bytearray:
    """Return a stored batch. ``records`` may have gaps: compaction keeps the batch's offsets."""
    first = base_offset if base_offset is not None else records[0].offset
    last = last_offset if last_offset is not None else records[-1].offset
    plain = bytearray()
    for record in records:
        deltas = varint(record.timestamp_ms - base_timestamp) + varint(record.offset - first)
        plain += varint(1 + len(deltas) + len(record.content)) + b"\0" + deltas + record.content
    newest = max((record.timestamp_ms for record in records), default=-1)
    return sealed(
        bytearray(
            _HEADER.pack(
                first,
                0,
                leader_epoch,
                2,
                0,
                attributes | CODECS.index(codec),
                last - first,
                base_timestamp,
                newest if max_timestamp is None else max_timestamp,
                producer_id,
                producer_epoch if producer_id >= 0 else -1,
                0 if producer_id >= 0 else -1,
                len(records),
            )
        )
        + compress(codec, plain)
    )


def sealed(data: bytearray) -> bytearray:
    """Set the length and the checksum of a batch."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def marker(offset: int, producer_id: int, *, commit: bool, epoch: int = 0) -> bytearray:
    """Return a control batch."""
    key = struct.pack(">hh", 0, int(commit))
    record = StoredRecord(offset, 0, content(key, b"\0" * 6))
    return log_batch([record], attributes=0x30, producer_id=producer_id, producer_epoch=epoch)


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int,
    timestamp_ms: int = -1,
    attributes: int = 0,
) -> bytearray:
    """Return a message of magic 0 or 1."""
    body = bytearray(struct.pack(">bb", magic, attributes))
    if magic:
        body += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    body = bytearray(struct.pack(">I", zlib.crc32(body))) + body
    return bytearray(struct.pack(">qi", offset, len(body))) + body


def message_set(
    records: Sequence[tuple[int, int, bytes | None, bytes | None]],
    codec: str,
    *,
    magic: int,
    appended_ms: int | None = None,
) -> bytearray:
    """Return a compressed message set; records are offset, timestamp, key, value."""
    first, last = records[0][0], records[-1][0]
    inner = b"".join(
        bytes(message(offset - first * magic, key, value, magic=magic, timestamp_ms=timestamp_ms))
        for offset, timestamp_ms, key, value in records
    )
    return message(
        last,
        None,
        bytes(compress(codec, inner)),
        magic=magic,
        timestamp_ms=records[-1][1] if appended_ms is None else appended_ms,
        attributes=CODECS.index(codec) | (0 if appended_ms is None else 0x08),
    )


def batches_of(*parts: bytes | bytearray | memoryview) -> list[Batch]:
    """Return the batches of a response."""
    return split_batches(memoryview(bytearray(b"".join(parts)))).batches


def _sized(part: bytes | None) -> bytes:
    return varint(-1) if part is None else varint(len(part)) + part
