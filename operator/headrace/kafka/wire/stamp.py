"""Batches made ready to be sent: stamped headers, checksums, and batches joined in C.

Brokers require values from a producer that stored batches lack: base offset 0 (otherwise compressed
batches are compressed again), no leader epoch, no bits of cleaning or of another transaction, and a
sequence.
"""

import ctypes
import struct
from array import array
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

from crc32c import crc32c

from headrace.kafka.wire.batches import HEADER_BYTES, Batch
from headrace.kafka.wire.native import Function, Native, address_of, native
from headrace.kafka.wire.scan import COLUMNS, RECORDS, batch_at
from headrace.kafka.wire.transactions import ProducerIdentity

# CRC-32C of what was changed at its beginning, without reading the rest.
#
# A checksum made over a whole batch would also fit what was damaged on the way here; this one does
# not, so that the broker still refuses it.

_POLYNOMIAL = 0x82F63B78
_Columns = list[int]
_Tables = tuple[list[int], list[int], list[int], list[int]]


def changed(checksum: int, old: bytes | memoryview, new: bytes | bytearray, rest_bytes: int) -> int:
    """``checksum`` of ``old`` and ``rest_bytes`` more, for ``new`` in place of ``old``.

    A checksum is linear: the difference at the beginning is shifted through the rest, by four bits
    of its length at a time.
    """
    difference: int = crc32c(old) ^ crc32c(new)
    for level in _LEVELS:
        if rest_bytes & 15:
            one, two, three, four = level.tables[rest_bytes & 15]
            difference = (
                one[difference & 255]
                ^ two[difference >> 8 & 255]
                ^ three[difference >> 16 & 255]
                ^ four[difference >> 24]
            )
        if not (rest_bytes := rest_bytes >> 4):
            break
    return checksum ^ difference


class _Level:
    """Effect of 0 to 15 times a number of zero bytes on a checksum."""

    def __init__(self, columns: Callable[[], _Columns]) -> None:
        self._columns = columns

    @cached_property
    def tables(self) -> list[_Tables]:
        """1 ms and 0.6 MB, at the first use."""
        columns, all_columns = self._columns(), [_NOTHING]
        for _ in range(15):
            all_columns.append([_applied(columns, column) for column in all_columns[-1]])
        return [_tables(one) for one in all_columns]


_NOTHING = [1 << bit for bit in range(32)]


def _columns_of_zeros(count: int) -> _Columns:
    """Return the effect of ``count`` zero bytes, a power of two, on each bit of a checksum."""
    columns = list(_NOTHING)
    for _ in range(8):
        columns = [value >> 1 ^ (_POLYNOMIAL if value & 1 else 0) for value in columns]
    while count > 1:
        columns = [_applied(columns, column) for column in columns]
        count >>= 1
    return columns


def _applied(columns: _Columns, value: int) -> int:
    result = 0
    for column in columns:
        if value & 1:
            result ^= column
        value >>= 1
    return result


def _tables(columns: _Columns) -> _Tables:
    """Return the effect on each value of each byte."""
    one, two, three, four = (_table(columns[first : first + 8]) for first in (0, 8, 16, 24))
    return one, two, three, four


def _table(columns: _Columns) -> list[int]:
    table = [0]
    for column in columns:
        table += [value ^ column for value in table]
    return table


_LEVELS = [_Level(partial(_columns_of_zeros, 16**level)) for level in range(8)]  # 31 bits


MAX_SEQUENCE = 2**31 - 1
_TRANSACTIONAL = 0x10
_KEPT = 0x0F  # codec and type of timestamps; not: transactional, control, delete horizon
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKSUM, _CHECKSUM_AT = struct.Struct(">I"), 17
_CHANGED = slice(21, 57)  # of what the checksum covers: attributes to sequence


class Stamped(NamedTuple):
    """A batch in two parts, which are sent one after the other."""

    header: bytearray
    records: memoryview


def stamped(batch: Batch, producer: ProducerIdentity, sequence: int) -> Stamped:
    """Return a batch of magic 2 for the target.

    Its checksum is valid only if the original's was.
    """
    (_, length, _, magic, checksum, attributes, delta, base, newest, _, _, _, count, data) = batch
    attributes = attributes & _KEPT | _TRANSACTIONAL * producer.transactional
    header = bytearray(
        _HEADER.pack(
            0, length, -1, magic, 0, attributes, delta, base, newest,
            producer.producer_id, producer.epoch, sequence, count,
        )
    )  # fmt: skip
    checksum = changed(checksum, data[_CHANGED], header[_CHANGED], len(data) - _CHANGED.stop)
    _CHECKSUM.pack_into(header, _CHECKSUM_AT, checksum)
    return Stamped(header, data[HEADER_BYTES:])


def stamp(
    data: memoryview,
    rows: "array[int]",
    producer: ProducerIdentity,
    sequence: int,
    helper: Native | None = None,
) -> bytearray:
    """Return the headers of all batches that ``rows`` describe in ``data``, behind each other.

    They are those of ``stamped``, with sequences from ``sequence`` on. ``helper`` replaces the
    library of this installation.
    """
    count = len(rows) // COLUMNS
    headers = bytearray(count * HEADER_BYTES)
    found = helper or native()
    if found is None or data.readonly or not count:
        for number in range(count):
            one = stamped(batch_at(data, rows, number), producer, sequence)
            headers[number * HEADER_BYTES : (number + 1) * HEADER_BYTES] = one.header
            sequence = sequence_after(sequence, rows[number * COLUMNS + RECORDS])
        return headers
    after = found.stamp(
        address_of(data), len(data), address_of(rows), count,
        producer.producer_id, producer.epoch, producer.transactional, sequence,
        address_of(headers),
    )  # fmt: skip
    if after < 0:
        raise ValueError("a row describes a batch that is not in the response")
    return headers


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence of the next batch; the largest is followed by 0."""
    return (sequence + records) & MAX_SEQUENCE


# Joining of small record batches into one, in C: see ``native.py``.
#
# The costs of a batch for Python and the target do not depend on its size, so that small batches
# cost several times as much for each byte as batches of 1 MiB. Joining writes their records again,
# because each record's offset and timestamp are relative to its batch. That takes 4 us a record in
# Python, more than it saves, and some 20 ns in C.

_SMALL_BYTES = 64 << 10
"""Maximum size of a batch to join: copying a larger one costs more than its overhead in Python."""

Helper = Function


class Joined(NamedTuple):
    """The first batches of a log, as one."""

    batch: Batch
    batches: int
    """How many they were."""
    size: int
    """Bytes that these had in the log, headers included."""


def join_helper() -> Helper | None:
    """Return the function in C, or ``None`` if it was not compiled."""
    found = native()
    return None if found is None else found.join


def joined_bytes(records: memoryview, most_bytes: int) -> int:
    """Return the size of the buffer for ``joined``.

    Offsets and timestamps relative to another batch are a few bytes longer. If they are longer than
    expected, fewer batches become one.
    """
    size = min(len(records), most_bytes)
    return HEADER_BYTES + size + (size >> 4) + 1024


def joined(
    helper: Helper, records: memoryview, start: int, most_bytes: int, into: bytearray
) -> Joined | None:
    """Join the first batches of ``records`` into ``into``; None if fewer than two can be joined.

    Batches begin at offset ``start`` or above, with at most ``most_bytes`` of records. They are
    intact and small, and their offsets are consecutive. They have no compression, no attribute
    bits, and as many records as offsets. Their memory must be writable, as ctypes requires.
    """
    if records.readonly or len(records) < HEADER_BYTES:
        return None
    taken = (ctypes.c_int64 * 2)()
    size = helper(
        address_of(records),
        len(records),
        start,
        _SMALL_BYTES,
        most_bytes,
        address_of(into),
        len(into),
        ctypes.addressof(taken),
    )
    if size <= 0:
        return None
    batch = Batch._make((*_HEADER.unpack_from(into), memoryview(into)[:size]))
    return Joined(batch, *taken)
