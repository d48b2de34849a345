"""Prepares batches for sending: stamps headers, corrects checksums, and joins small batches.

The header of a batch to send differs from the header of the stored batch. Its base offset is 0,
because brokers otherwise recompress compressed batches. It has no leader epoch, no delete horizon,
and no flag of another transaction. Its sequence is the producer's.
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

# Corrects the CRC-32C after a change at the beginning of a batch, without reading the rest. If the
# batch was damaged before it arrived here, a new checksum of the whole batch would hide the damage.
# The corrected checksum stays wrong, and the target's broker rejects the batch.

_POLYNOMIAL = 0x82F63B78
_Columns = list[int]
_Tables = tuple[list[int], list[int], list[int], list[int]]


def changed(checksum: int, old: bytes | memoryview, new: bytes | bytearray, rest_bytes: int) -> int:
    """Return the checksum after ``old`` at the beginning was replaced by ``new``.

    ``checksum`` covers ``old`` and ``rest_bytes`` more bytes. CRCs are linear: the difference at
    the beginning is shifted through the rest, in one step for each four bits of ``rest_bytes``.
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
    """Effect on a checksum of 0 to 15 blocks of zero bytes. Level n has blocks of 16**n bytes."""

    def __init__(self, columns: Callable[[], _Columns]) -> None:
        self._columns = columns

    @cached_property
    def tables(self) -> list[_Tables]:
        """Tables of the effect, by number of blocks. Created at the first use (1 ms, 0.6 MB)."""
        columns, all_columns = self._columns(), [_NOTHING]
        for _ in range(15):
            all_columns.append([_applied(columns, column) for column in all_columns[-1]])
        return [_tables(one) for one in all_columns]


_NOTHING = [1 << bit for bit in range(32)]


def _columns_of_zeros(count: int) -> _Columns:
    """Return the effect of ``count`` zero bytes on each bit of a checksum.

    ``count`` must be a power of two.
    """
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
    """Return the effect on each value of each of a checksum's four bytes."""
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
_KEPT = 0x0F  # codec and timestamp type; not transactional, control, delete horizon
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKSUM, _CHECKSUM_AT = struct.Struct(">I"), 17
_CHANGED = slice(21, 57)  # attributes to sequence, as part of the bytes that the checksum covers


class Stamped(NamedTuple):
    """Header and records of a batch, which are sent one after the other."""

    header: bytearray
    records: memoryview


def stamped(batch: Batch, producer: ProducerIdentity, sequence: int) -> Stamped:
    """Return a batch of magic 2 with the header that the target requires.

    The checksum is valid only if the original's was.
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
    """Return the stamped headers of all batches that ``rows`` describe in ``data``, concatenated.

    The headers equal those of ``stamped``, with sequences from ``sequence`` on. ``helper`` replaces
    the installed library.
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
    """Return the sequence after a batch. It wraps to 0 after ``MAX_SEQUENCE``."""
    return (sequence + records) & MAX_SEQUENCE


# Joining of small record batches into one, in C. See ``native.py``.
# The cost of a batch in Python and on the target does not depend on its size, so small batches cost
# several times as much per byte as batches of 1 MiB. Joining rewrites the records, because offset
# and timestamp of a record are relative to its batch. In Python, rewriting a record would take
# 4 us, more than joining saves. In C it takes about 20 ns.

_SMALL_BYTES = 64 << 10
"""Maximum size in bytes of a batch to join. Copying a larger batch costs more than joining it
saves."""

Helper = Function


class Joined(NamedTuple):
    """Result of joining the first batches of a chunk."""

    batch: Batch
    batches: int
    """Number of joined batches."""
    size: int
    """Total size of the joined batches before they were joined, with their headers."""


def join_helper() -> Helper | None:
    """Return the C function, or None if it was not compiled."""
    found = native()
    return None if found is None else found.join


def joined_bytes(records: memoryview, most_bytes: int) -> int:
    """Return the size of the buffer that ``joined`` needs.

    In the new batch, offsets and timestamps of records may need a few more bytes. If they need more
    bytes than the buffer has in reserve, fewer batches are joined.
    """
    size = min(len(records), most_bytes)
    return HEADER_BYTES + size + (size >> 4) + 1024


def joined(
    helper: Helper, records: memoryview, start: int, most_bytes: int, into: bytearray
) -> Joined | None:
    """Join the first batches of ``records`` into ``into``, or return None if fewer than two fit.

    The joined batches start at offset ``start`` or above, and their records have at most
    ``most_bytes``. Only intact, small, uncompressed batches without attribute bits are joined, as
    long as their offsets have no gaps. ``records`` must be writable, as ctypes requires.
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
