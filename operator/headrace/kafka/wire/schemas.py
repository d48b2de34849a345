"""Reads messages by kio's schemas, and integers of variable length.

kio's own reader aborts the process if a compact array claims 2**32 - 2 entries. This reader checks
each count against the remaining bytes before it allocates memory, and raises ``ValueError`` for all
invalid input.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from types import NoneType
from typing import Any, cast, get_args, get_origin

from kio.schema.errors import ErrorCode

from headrace.logs import get_logger

# Integers of variable length. Flexible versions of the protocol use unsigned ones (KIP-482), and
# records use signed ones (zigzag).


@lru_cache(4096)  # the hot path repeats the same lengths
def uvarint(number: int) -> bytes:
    """Encode ``number`` with 7 bits per byte, lowest bits first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(view: memoryview, place: int) -> tuple[int, int]:
    """Return the number and the next position.

    Raise ``IndexError`` if the number is incomplete, and ``ValueError`` if it has more than 32
    bits.
    """
    byte = view[place]
    place += 1
    if byte < 0x80:
        return byte, place
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 28:
            raise ValueError("a length of more than 32 bits")
        byte = view[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, place


def varint(number: int) -> bytes:
    """Encode a signed number of at most 64 bits."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    return bytes((zigzag,)) if zigzag < 0x80 else uvarint(zigzag)


def read_varint(view: memoryview, place: int) -> tuple[int, int]:
    """Return a signed number and the next position.

    Raise ``IndexError`` if the number is incomplete, and ``ValueError`` if it has more than 64
    bits.
    """
    number = view[place]
    place += 1
    if number >= 0x80:
        number &= 0x7F
        shift = 7
        while True:
            byte = view[place]
            place += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
    return number >> 1 ^ -(number & 1), place


log = get_logger(__name__)

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""Takes bytes and a position, and returns the value and the next position."""

_NUMBERS = {
    "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint8": ">B", "uint16": ">H",
    "uint32": ">I", "float64": ">d", "bool": ">?", "error_code": ">h", "timedelta_i32": ">i",
    "timedelta_i64": ">q", "datetime_i64": ">q",
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def error_code(code: int) -> ErrorCode:
    """Return the error for a code. An unknown code returns ``unknown_server_error``."""
    try:
        return ErrorCode(code)
    except ValueError:
        _log_unknown(code)
        return ErrorCode.unknown_server_error


@cache
def _log_unknown(code: int) -> None:
    """Log an unknown code once. The reported error does not contain the number."""
    log.warning(
        "a broker answered with an error code that this headrace does not know: it is treated as "
        "UNKNOWN_SERVER_ERROR",
        code=code,
    )


def _datetime(milliseconds: int) -> datetime | None:
    return None if milliseconds == -1 else _EPOCH + timedelta(milliseconds=milliseconds)


def _milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=number)


_MEANING: dict[str, Callable[[Any], Any]] = {
    "error_code": error_code,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _datetime,
}


def read_message(schema: type, view: memoryview, place: int) -> tuple[Any, int]:
    """Read a message of a kio class. Raise ``ValueError`` for invalid bytes."""
    try:
        return _entity(schema)(view, place)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(str(error)) from error


@cache
def _entity(schema: Any) -> Reader:
    flexible: bool = schema.__flexible__
    plain = [
        (one.name, _field(one, flexible)) for one in fields(schema) if "tag" not in one.metadata
    ]
    tagged = {one.metadata["tag"]: one for one in fields(schema) if "tag" in one.metadata}
    read_tagged = {tag: (one.name, _field(one, flexible)) for tag, one in tagged.items()}
    absent = {one.name: () for one in tagged.values() if one.default is MISSING}

    def read(view: memoryview, place: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for name, read_one in plain:
            values[name], place = read_one(view, place)
        if flexible:
            values |= absent
            count, place = read_uvarint(view, place)
            for _ in range(count):
                tag, place = read_uvarint(view, place)
                size, place = read_uvarint(view, place)
                content, place = _cut(view, place, size)
                if tag in read_tagged:
                    name, read_one = read_tagged[tag]
                    values[name], _ = read_one(content, 0)
        return schema(**values), place

    return read


def _field(one: Field[Any], flexible: bool) -> Reader:
    optional, kind = _without_none(one.type)
    if get_origin(kind) is tuple:
        kind = _without_none(get_args(kind)[0])[1]
        entry = _entity(cast(Any, kind)) if is_dataclass(kind) else _value(one, False, flexible)
        return _array(entry, optional, flexible)
    return _entity(cast(Any, kind)) if is_dataclass(kind) else _value(one, optional, flexible)


def entry_type(one: Field[Any]) -> Any:
    """Return the type of a field, or of its entries if the field is an array."""
    kind = _without_none(one.type)[1]
    return _without_none(get_args(kind)[0])[1] if get_origin(kind) is tuple else kind


def _without_none(kind: Any) -> tuple[bool, Any]:
    if NoneType in get_args(kind):
        return True, next(part for part in get_args(kind) if part is not NoneType)
    return False, kind


def _array(entry: Reader, optional: bool, flexible: bool) -> Reader:
    def read(view: memoryview, place: int) -> tuple[Any, int]:
        count, place = _length(view, place, flexible, ">i")
        if count < 0 and optional:
            return None, place
        if not 0 <= count <= len(view) - place:  # each entry has at least one byte
            raise ValueError(f"{count} entries in {len(view) - place} bytes")
        entries = []
        for _ in range(count):
            value, place = entry(view, place)
            entries.append(value)
        return tuple(entries), place

    return read


def _value(one: Field[Any], optional: bool, flexible: bool) -> Reader:
    kind = one.metadata["kafka_type"]
    if kind in _NUMBERS:
        return _number(struct.Struct(_NUMBERS[kind]), _MEANING.get(kind))
    if kind == "uuid":
        return _uuid
    if kind not in ("string", "bytes"):
        raise TypeError(f"{one.name} is of type {kind}, which this client does not read")

    def read(view: memoryview, place: int) -> tuple[Any, int]:
        size, place = _length(view, place, flexible, ">h" if kind == "string" else ">i")
        if size < 0 and optional:
            return None, place
        content, place = _cut(view, place, size)
        return (str(content, "utf-8") if kind == "string" else bytes(content)), place

    return read


def _number(form: struct.Struct, meaning: Callable[[Any], Any] | None) -> Reader:
    def read(view: memoryview, place: int) -> tuple[Any, int]:
        (value,) = form.unpack_from(view, place)
        return (value if meaning is None else meaning(value)), place + form.size

    return read


def _uuid(view: memoryview, place: int) -> tuple[uuid.UUID | None, int]:
    """Read a UUID. Kafka and kio use zero for null."""
    content, place = _cut(view, place, 16)
    found = uuid.UUID(bytes=bytes(content))
    return (found if found.int else None), place


def _length(view: memoryview, place: int, flexible: bool, form: str) -> tuple[int, int]:
    """Return a length, or -1 for null, and the next position."""
    if flexible:
        length, place = read_uvarint(view, place)
        return length - 1, place
    return struct.unpack_from(form, view, place)[0], place + struct.calcsize(form)


def _cut(view: memoryview, place: int, size: int) -> tuple[memoryview, int]:
    if not 0 <= size <= len(view) - place:
        raise ValueError(f"{size} bytes of the {len(view) - place} that are left")
    return view[place : place + size], place + size
