"""Comparison of two logs, offset by offset, before a copy resumes. Pure.

The end of the target's log is not sufficient: with one marker too many, all that follows would be
one offset late.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.replication.reconcile import Dropped, Marker, Record

Entry = Record | Dropped | Marker
"""Entry as ``Tail`` yields it, in the order of offsets. Offsets without an entry were removed by
compaction.
"""


class Difference(NamedTuple):
    """The first offset at which they differ, and how."""

    offset: int
    what: str


class _Cursor:
    """Entries, one by one."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: Iterator[Entry] = iter(entries)
        self._entry: Entry | None = next(self._entries, None)

    def at(self, offset: int) -> Entry | None:
        """Return the entry at an offset; offsets must be requested in ascending order."""
        while self._entry is not None and self._entry.last < offset:
            self._entry = next(self._entries, None)
        return self._entry if self._entry is not None and self._entry.offset <= offset else None

    @property
    def following(self) -> Entry | None:
        """The first entry behind an offset that has none, which was asked for."""
        return self._entry

    def changes(self, offset: int, end: int) -> int:
        """Return the next offset that may differ in kind from ``offset``, which was requested."""
        if self._entry is None:
            return end
        return self._entry.offset if self._entry.offset > offset else self._entry.last + 1


def first_difference(
    source: Iterable[Entry],
    target: Iterable[Entry],
    offsets: range,
    *,
    source_compacts: bool = False,
    target_compacts: bool = False,
    compare_timestamps: bool = True,
) -> Difference | None:
    """Return the first difference in these offsets.

    Both logs have reached them, and neither has deleted them at its start. A marker and an aborted
    record are equivalent: no consumer sees them. ``compacts`` states that this side may have
    removed records since they were copied. Where the source has no entry, the target may have a
    copy of the record that follows there (``offsets.holes: Copies``).
    """
    ours, theirs = _Cursor(source), _Cursor(target)
    offset = offsets.start
    while offset < offsets.stop:
        original, copy = ours.at(offset), theirs.at(offset)
        if original is None and isinstance(copy, Record) and _repeats(copy, ours.following):
            what = ""
        else:
            what = _difference(original, copy, source_compacts, target_compacts, compare_timestamps)
        if what:
            return Difference(offset, what)
        offset = min(ours.changes(offset, offsets.stop), theirs.changes(offset, offsets.stop))
    return None


def _difference(
    original: Entry | None,
    copy: Entry | None,
    source_compacts: bool,
    target_compacts: bool,
    compare_timestamps: bool,
) -> str:
    """Empty: none."""
    if copy is None:
        return "" if target_compacts else "the target does not hold this offset"
    if isinstance(copy, Record) and isinstance(original, Record):
        return _other(original, copy, compare_timestamps)
    if isinstance(original, Record):
        return "the source holds a record, and the target a marker or an aborted record"
    if not isinstance(copy, Record) or (original is None and source_compacts):
        return ""
    instead = "none" if original is None else "a marker or an aborted record"
    return f"the target holds a record, and the source {instead}"


def _repeats(copy: Record, following: Entry | None) -> bool:
    return isinstance(following, Record) and not _other(following, copy, compare_timestamps=True)


def _other(original: Record, copy: Record, compare_timestamps: bool) -> str:
    for what in ("key", "value", "headers"):
        if getattr(original, what) != getattr(copy, what):
            return f"the {what} of the record differs"
    if compare_timestamps and original.timestamp_ms != copy.timestamp_ms:
        return "the timestamp of the record differs"
    return ""
