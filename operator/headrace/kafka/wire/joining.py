"""Several uncompressed record batches made one, by a helper in C where it was compiled.

A batch costs some 45 us of Python whatever it holds, so that batches of 16 KiB cost three times as
much a byte as those of 1 MiB. Their records have to be written again, as each counts its offset and
its timestamp from those of its batch: 4 us a record in Python, more than is gained, and some 20 ns
in ``join.c``. ``hatch_build.py`` compiles it where there is a compiler; nothing needs it.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crc32c import crc32c

from headrace.kafka.wire.batches import HEADER_BYTES, Batch, stored_bytes
from headrace.logs import get_logger

log = get_logger(__name__)

LIBRARY = Path(__file__).with_name("libheadrace_join.so")
"""Where ``hatch_build.py`` puts it."""
_GROWS_BY = 18
"""Bytes of a record at most, by a longer length (4), timestamp delta (9) and offset delta (4)."""
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKSUM, _CHECKSUM_AT, _CHECKED_FROM = struct.Struct(">I"), 17, 21

Helper = Callable[..., int]


@cache
def join_helper(library: Path = LIBRARY) -> Helper | None:
    """The function in C; ``None``: there is none here."""
    if not library.exists():
        return None
    try:
        # It keeps the interpreter's lock: a call takes as long as it takes to release it.
        function: Any = ctypes.PyDLL(str(library)).headrace_join
    except (OSError, AttributeError) as error:
        log.warning("the helper for small batches is not used", why=str(error))
        return None
    number, place = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [place, number, number, place, number, place]
    function.restype = number
    return function  # type: ignore[no-any-return]


def joined_bytes(batches: Sequence[Batch]) -> int:
    """How large these may become as one; they are as ``joined`` wants them."""
    records = batches[-1].last_offset + 1 - batches[0].base_offset
    return stored_bytes(batches) - (len(batches) - 1) * HEADER_BYTES + _GROWS_BY * records


def joined(helper: Helper, batches: Sequence[Batch], into: bytearray) -> Batch | None:
    """One with their records, in the first ``joined_bytes`` of ``into``; ``None``: one of them is
    damaged.

    Batches of one response that follow each other in it and in their offsets, without compression,
    without bits of any kind, with as many records as offsets; in memory that can be written to, as
    ctypes wants it.
    """
    first, last = batches[0], batches[-1]
    if first.data.readonly or not all(batch.intact for batch in batches):
        return None
    start, end = _address(first.data), _address(last.data) + len(last.data)
    if end - start != stored_bytes(batches):
        return None
    found = (ctypes.c_int64 * 2)()
    size = helper(
        start,
        end - start,
        len(batches),
        _address(memoryview(into)[HEADER_BYTES:]),
        len(into) - HEADER_BYTES,
        ctypes.addressof(found),
    )
    count, newest = found
    if size < 0 or count != last.last_offset + 1 - first.base_offset:
        return None
    data = memoryview(into)[: HEADER_BYTES + size]
    header = [
        first.base_offset, len(data) - 12, first.leader_epoch, 2, 0, 0, count - 1,
        first.base_timestamp, newest, -1, -1, -1, count,
    ]  # fmt: skip
    _HEADER.pack_into(data, 0, *header)
    header[4] = crc32c(data[_CHECKED_FROM:])
    _CHECKSUM.pack_into(data, _CHECKSUM_AT, header[4])
    return Batch._make((*header, data))


def _address(data: memoryview) -> int:
    """Of memory that can be written to: responses are received into such."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
