"""Joining of small record batches into one, in C: see ``native.py``.

The costs of a batch for Python and the target do not depend on its size, so that small batches cost
several times as much for each byte as batches of 1 MiB. Joining writes their records again, because
each record's offset and timestamp are relative to its batch. That takes 4 us a record in Python,
more than it saves, and some 20 ns in C.
"""

import ctypes
import struct
from typing import NamedTuple

from headrace.kafka.wire.batches import HEADER_BYTES, Batch
from headrace.kafka.wire.native import Function, address_of, native

_HEADER = struct.Struct(">qiibIhiqqqhii")
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
