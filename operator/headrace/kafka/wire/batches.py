"""Reads the headers of record batches, without copying them, and transaction markers.

The format is described in Kafka's documentation, "Message Format". All values that a broker may
send are checked before use.
"""

import struct
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from crc32c import crc32c

from headrace.kafka.wire.errors import CorruptBatch

HEADER_BYTES = 61
"""Size of a batch's header (magic 2) in bytes."""

_LOG_OVERHEAD = 12  # base offset and length, which the length does not include
_CHECKED_FROM = 21  # the checksum covers the attributes and everything after them
_OLDEST_BYTES = 14  # a message of magic 0: checksum, magic, attributes, two lengths
_START = struct.Struct(">qiib")
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Batch(NamedTuple):
    """One record batch.

    For magic 0 and 1, only ``base_offset``, ``length``, ``magic`` and ``data`` are valid. Such a
    batch is a single message or a compressed set, and ``base_offset`` is the offset of its *last*
    record.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: memoryview
    """The batch including its header. Valid until the response is released."""

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> str:
        """Kafka's name of the compression codec, or ``unknown``."""
        code = self.attributes & 0x07
        return _CODECS[code] if code < len(_CODECS) else "unknown"

    @property
    def log_append_time(self) -> bool:
        """True if the broker set the timestamps.

        The timestamp of each record is then ``max_timestamp``.
        """
        return bool(self.attributes & 0x08)

    @property
    def transactional(self) -> bool:
        """True if the batch is part of a transaction."""
        return bool(self.attributes & 0x10)

    @property
    def control(self) -> bool:
        """True if the batch contains a transaction marker instead of data."""
        return bool(self.attributes & 0x20)

    @property
    def payload(self) -> memoryview:
        """The records as stored, possibly compressed, without the header. Only for magic 2."""
        return self.data[HEADER_BYTES:]

    @property
    def payload_bytes(self) -> int:
        """Size of ``payload``. Only for magic 2."""
        return len(self.data) - HEADER_BYTES

    @property
    def intact(self) -> bool:
        """True if the checksum is correct. Takes 30 us for 1 MiB."""
        return crc32c(self.data[_CHECKED_FROM:]) == self.crc


_DATA = attrgetter("data")


def stored_bytes(batches: Iterable[Batch]) -> int:
    """Return the total size of the batches, headers included.

    Hot path: it runs no Python code for each batch.
    """
    return sum(map(len, map(_DATA, batches)))


class Split(NamedTuple):
    """Batches of a response, and the size of an incomplete batch at its end."""

    batches: list[Batch]
    truncated_bytes: int
    """Size of an incomplete last batch. This is not an error: the batch is fetched again."""


def split_batches(records: memoryview) -> Split:
    """Return the batches of one partition of a Fetch response.

    Raise ``CorruptBatch`` for data that no broker writes, for example if offsets do not ascend, or
    if a batch claims more records than it has offsets.
    """
    batches: list[Batch] = []
    place = next_offset = 0
    while (batch := read_batch(records, place, next_offset)) is not None:
        batches.append(batch)
        next_offset = batch.last_offset + 1
        place += len(batch.data)
    return Split(batches, len(records) - place)


def read_batch(records: memoryview, place: int, next_offset: int) -> Batch | None:
    """Return the batch at byte ``place``, or None if it is incomplete.

    Raise ``CorruptBatch`` as ``split_batches`` does, also for a batch that begins before
    ``next_offset``.
    """
    left = len(records) - place
    if left >= HEADER_BYTES:  # the hot path: a valid batch
        header = _HEADER.unpack_from(records, place)
        base_offset, length, _, magic, _, _, delta, _, _, _, _, _, count = header
        size = _LOG_OVERHEAD + length
        if (
            magic == 2
            and HEADER_BYTES <= size <= left
            and base_offset >= next_offset
            and 0 <= count <= delta + 1
        ):
            return Batch._make((*header, records[place : place + size]))
    if left < _START.size:
        return None
    base_offset, length, epoch, magic = _START.unpack_from(records, place)
    smallest = HEADER_BYTES - _LOG_OVERHEAD if magic == 2 else _OLDEST_BYTES
    if not 0 <= magic <= 2:
        raise CorruptBatch(f"{_at(base_offset, place)} has magic {magic}: Kafka has 0, 1, 2")
    if length < smallest:
        raise CorruptBatch(
            f"{_at(base_offset, place)} says that {length} bytes follow: at least {smallest} do"
        )
    if base_offset < next_offset:
        raise CorruptBatch(
            f"{_at(base_offset, place)} follows one that ends with offset {next_offset - 1}"
        )
    size = _LOG_OVERHEAD + length
    if size > left:
        return None
    data = records[place : place + size]
    if magic < 2:
        return Batch(base_offset, length, epoch, magic, 0, 0, 0, -1, -1, -1, -1, -1, 0, data)
    batch = Batch._make((*_HEADER.unpack_from(records, place), data))
    raise CorruptBatch(
        f"{_at(base_offset, place)} says {batch.record_count} records in "
        f"{batch.last_offset_delta + 1} offsets"
    )


def _at(base_offset: int, place: int) -> str:
    return f"the record batch with base offset {base_offset}, at byte {place} of the response,"


_KEY = struct.Struct(">hh")  # version, type
_KEY_BYTES = 4
_FIXED_BYTES = 4  # length, attributes and both deltas of the only record, one byte each


def aborts(batch: Batch) -> bool:
    """Return True if a control batch aborts its producer's transaction.

    A control batch has one record, without compression. Markers of other types are commits: control
    records of Raft do not occur in data partitions. Raise ``CorruptBatch`` if the marker cannot be
    read.
    """
    place = HEADER_BYTES + _FIXED_BYTES
    data = batch.data
    # Lengths are zigzag-encoded.
    if len(data) < place + 1 + _KEY_BYTES or data[place] != 2 * _KEY_BYTES:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} has no readable key")
    _, kind = _KEY.unpack_from(data, place + 1)
    return bool(kind == 0)
