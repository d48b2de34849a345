"""Small record batches of a log made one, by a helper in C where it was compiled.

A batch costs some 45 us of Python whatever it holds, so that batches of 16 KiB cost three times as
much a byte as those of 1 MiB. Their records have to be written again, as each counts its offset and
its timestamp from those of its batch: 4 us a record in Python, more than is gained, and some 20 ns
in ``join.c``. It also finds the batches, and checks them: 9 us a batch in Python, and one in C.
``hatch_build.py`` compiles it where there is a compiler; nothing needs it.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from headrace.kafka.wire.batches import HEADER_BYTES, Batch
from headrace.logs import get_logger

log = get_logger(__name__)

LIBRARY = Path(__file__).with_name("libheadrace_join.so")
"""Where ``hatch_build.py`` puts it."""
_HEADER = struct.Struct(">qiibIhiqqqhii")
_ATTRIBUTES_AT = 21
_SMALL_BYTES = 64 << 10
"""Of a batch that is joined: a larger one costs more to copy than Python costs for it."""

Helper = Callable[..., int]


class Joined(NamedTuple):
    """The first batches of a log, as one."""

    batch: Batch
    batches: int
    """How many they were."""
    size: int
    """Bytes that these had in the log, headers included."""


@cache
def join_helper(library: Path = LIBRARY) -> Helper | None:
    """The function in C; ``None``: there is none here."""
    if not library.exists():
        return None
    try:
        # It keeps the interpreter's lock: a call takes as long as it takes to release it.
        function: Any = ctypes.PyDLL(str(library)).headrace_join_2
    except (OSError, AttributeError) as error:
        log.warning("the helper for small batches is not used", why=str(error))
        return None
    number, place = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [place, number, number, number, number, place, number, place]
    function.restype = number
    return function  # type: ignore[no-any-return]


def joinable(records: memoryview, place: int) -> bool:
    """Whether the batch that begins there may be one of those: it is not compressed, and has no
    other bits."""
    bits = records[place + _ATTRIBUTES_AT : place + _ATTRIBUTES_AT + 2]
    return bits.tobytes() == b"\0\0"


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
        _address(records),
        len(records),
        start,
        _SMALL_BYTES,
        most_bytes,
        _address(into),
        len(into),
        ctypes.addressof(taken),
    )
    if size <= 0:
        return None
    batch = Batch._make((*_HEADER.unpack_from(into), memoryview(into)[:size]))
    return Joined(batch, *taken)


def _address(data: memoryview | bytearray) -> int:
    """Of memory that can be written to: responses are received into such."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
