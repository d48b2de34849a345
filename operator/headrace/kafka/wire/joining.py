"""Small record batches of a log made one, in C: see ``native.py``.

Each batch costs Python and the target the same, whatever it holds, so that small batches cost
several times as much a byte as those of 1 MiB. Joining them writes their records again, because
each record counts its offset and its timestamp from those of its batch. That takes 4 us a record in
Python, more than it saves, and some 20 ns in C.
"""

import ctypes
import struct
from typing import NamedTuple

from headrace.kafka.wire.batches import HEADER_BYTES, Batch
from headrace.kafka.wire.native import Function, address_of, native

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SMALL_BYTES = 64 << 10
"""Of a batch that is joined: a larger one costs more to copy than Python costs for it."""

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
    """Of the buffer for ``joined``. Offsets and timestamps that count from those of another batch
    are a few bytes longer; of records for which that is more, fewer batches become one."""
    size = min(len(records), most_bytes)
    return HEADER_BYTES + size + (size >> 4) + 1024


def joined(
    helper: Helper, records: memoryview, start: int, most_bytes: int, into: bytearray
) -> Joined | None:
    """The first batches of ``records``, as many as become one in ``into``; ``None``: not two do.

    Of offset ``start`` and above; at most ``most_bytes`` of records. They are intact, small, and
    follow each other in their offsets, without compression, without bits of any kind, with as many
    records as offsets. Memory that can be written to, as ctypes wants it.
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
