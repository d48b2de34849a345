"""Names of the fields of a message by their positions, and the fields that no checksum covers."""

from collections.abc import Generator, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, cast

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.static.primitive import i16
from soak.wire.proxy import Direction, Frame

from headrace.kafka.wire.schemas import entry_type, read_uvarint

_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4,
    "uint32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8,
    "uuid": 16,
}  # fmt: skip
_BATCH = (
    ("base_offset", 8), ("batch_length", 4), ("partition_leader_epoch", 4), ("magic", 1),
    ("crc", 4),
)  # fmt: skip
COVERED = "records"
"""Name of the part of a batch that its checksum covers."""

_GROUP = {"group_id", "name", "topic_id", "partition_index"}
NOT_FOUND = {
    ("fetch", Direction.REQUEST): {"isolation_level"},
    ("fetch", Direction.RESPONSE): {"topic", "topic_id", "partition_index", "base_offset"},
    ("list_offsets", Direction.REQUEST): {"timestamp", "isolation_level"},
    ("list_offsets", Direction.RESPONSE): {"offset", "timestamp"},
    ("produce", Direction.REQUEST): {"name", "topic_id", "index"},
    ("offset_commit", Direction.REQUEST): _GROUP,
}
"""Fields that docs/faults.md lists as not found, and on which records or groups depend."""


class Span(NamedTuple):
    """Bytes of a field in a frame."""

    name: str
    start: int
    end: int

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]


def spans(frame: Frame) -> list[Span]:
    """Return the fields of a frame, as far as its schema is known.

    A response to a damaged request may have another version.
    """
    found = [Span("length", 0, 4)]
    load = load_request_schema if frame.direction is Direction.REQUEST else load_response_schema
    try:
        schema: Any = load(i16(frame.api_key), i16(frame.version))
        view, place = memoryview(frame.content), 4
        for part in (schema.__header_schema__, schema):
            place = _collect(found, _entity(part, view, place, ""))
    except (KioIndexError, IndexError, ValueError):
        pass
    return [one for one in found if one.end <= len(frame.content)]


def field_at(frame: Frame, byte: int) -> str:
    """Return the name of the field at a position."""
    return next((one.name for one in spans(frame) if one.start <= byte < one.end), "unnamed")


def _collect(found: list[Span], walk: Generator[Span, None, int]) -> int:
    """Append all spans, and return the position after the last one."""
    while True:
        try:
            found.append(next(walk))
        except StopIteration as end:
            return cast(int, end.value)


def _entity(schema: Any, view: memoryview, place: int, path: str) -> Generator[Span, None, int]:
    flexible: bool = schema.__flexible__
    for one in fields(schema):
        if "tag" not in one.metadata:
            place = yield from _field(one, view, place, f"{path}{one.name}", flexible)
    if flexible:
        start = place
        count, place = read_uvarint(view, place)
        for _ in range(count):
            _, place = read_uvarint(view, place)
            size, place = read_uvarint(view, place)
            place += size
        yield Span(f"{path}tags", start, place)
    return place


def _field(
    one: Any, view: memoryview, place: int, path: str, flexible: bool
) -> Generator[Span, None, int]:
    if place > len(view):
        raise IndexError(f"{path} begins after the end")
    if "tuple[" in str(one.type):
        count, begin = _length(view, place, flexible, 4)
        yield Span(f"{path}.count", place, begin)
        place = begin
        for _ in range(max(0, count)):
            place = yield from _value(one, view, place, path, flexible)
        return place
    return (yield from _value(one, view, place, path, flexible))


def _value(
    one: Any, view: memoryview, place: int, path: str, flexible: bool
) -> Generator[Span, None, int]:
    if is_dataclass(kind := entry_type(one)):
        return (yield from _entity(kind, view, place, f"{path}."))
    word = one.metadata["kafka_type"]
    if word in _SIZES:
        yield Span(path, place, place + _SIZES[word])
        return place + _SIZES[word]
    # A header's client id has a short length in flexible versions as well.
    flexible = flexible and path != "client_id"
    size, begin = _length(view, place, flexible, 2 if word == "string" else 4)
    if word == "records" and size > 0:
        yield Span(f"{path}.size", place, begin)
        yield from _batches(view, begin, begin + size)
    else:
        yield Span(path, place, begin + max(0, size))
    return begin + max(0, size)


def _batches(view: memoryview, place: int, end: int) -> Iterator[Span]:
    while place + 61 <= end:
        after = place + 12 + int.from_bytes(view[place + 8 : place + 12])
        for name, size in _BATCH:
            yield Span(f"batch.{name}", place, place + size)
            place += size
        yield Span(f"batch.{COVERED}", place, min(after, end))
        place = after


def _length(view: memoryview, place: int, flexible: bool, size: int) -> tuple[int, int]:
    if flexible:
        length, place = read_uvarint(view, place)
        return length - 1, place
    return int.from_bytes(view[place : place + size], signed=True), place + size
