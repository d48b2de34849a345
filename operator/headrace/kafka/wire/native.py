"""Loads the compiled hot paths in ``native.c``, if there are any.

``hatch_build.py`` compiles ``native.c`` if the machine has a compiler. Without the library,
``scan`` and ``stamp`` run in Python, and small batches are joined in Python or not at all.
"""

import ctypes
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headrace.logs import get_logger

log = get_logger(__name__)

LIBRARY = Path(__file__).with_name("libheadrace_native.so")
"""Path of the library that ``hatch_build.py`` writes."""

Function = Callable[..., int]
_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p


class Native(NamedTuple):
    """Functions of ``native.c``. Their arguments are addresses and sizes."""

    join: Function
    scan: Function
    stamp: Function


_ARGUMENTS = {
    "headrace_join_2": (_POINTER, *[_NUMBER] * 4, _POINTER, _NUMBER, _POINTER),
    "headrace_scan_1": (
        *(_POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER, _NUMBER),
        *(_POINTER, _POINTER, _NUMBER, _POINTER),
    ),
    "headrace_stamp_1": (_POINTER, _NUMBER, _POINTER, *[_NUMBER] * 5, _POINTER),
}


@cache
def native(library: Path = LIBRARY) -> Native | None:
    """Return the functions of the library, or None if it is missing or does not fit this code."""
    if not library.exists():
        return None
    try:
        # PyDLL keeps the interpreter lock. Releasing the lock would take as long as a call.
        loaded = ctypes.PyDLL(str(library))
        functions = []
        for name, arguments in _ARGUMENTS.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = arguments, _NUMBER
            functions.append(function)
    except (OSError, AttributeError) as error:
        log.warning("the compiled hot path is not used", why=str(error))
        return None
    return Native(*functions)


def address_of(data: "memoryview | bytearray | array[int]") -> int:
    """Return the address of writable memory, such as a receive buffer."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
