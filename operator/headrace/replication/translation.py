"""Source offsets of one partition, translated to the target. Pure.

A committed source offset is translated to the largest target offset from which a reader receives
every record that the target holds of the source's from there on, in the source's order. That is the
offset of the very next record; at the end of the copy, the end of the target's log.
"""

from enum import StrEnum
from typing import NamedTuple

from headrace.replication.offset_map import MOST_RANGES, NEVER, OffsetMap


class Precision(StrEnum):
    """How good a translation is. None of them skips a record."""

    EXACT = "Exact"
    CONSERVATIVE = "Conservative"
    """MirrorMaker 2's rule: records are read again, as not every pair is known."""
    AHEAD = "Ahead"
    """The source offset is not copied yet: this is the end of the copy."""


class Translated(NamedTuple):
    """An offset of the target."""

    offset: int
    precision: Precision


class Translation:
    """What a partition's mover has copied where.

    A copy that resumes at an earlier offset repeats records. Until it has passed those that were
    copied before, only the earlier ones lead to all records in order; then the later ones go, as
    they are repeated no more.
    """

    def __init__(self, begins: int, *, complete_from: int, most: int = MOST_RANGES) -> None:
        """``begins``: the next source offset to copy; ``complete_from``: no record from there on is
        on the target but those that are reported here, ``NEVER`` where only samples are, as offset
        syncs; ``most``: see ``OffsetMap``."""
        self._most = most
        self._settled = OffsetMap(complete_from, most)
        self._again: OffsetMap | None = None
        """Of a copy that resumed at an earlier offset and has not passed ``_settled`` yet."""
        self._copied_to = begins
        self._target_end = 0

    def __len__(self) -> int:
        """Ranges that are kept."""
        return len(self._settled) + (0 if self._again is None else len(self._again))

    @property
    def _latest(self) -> OffsetMap:
        return self._settled if self._again is None else self._again

    def copied(self, source: int, target: int, records: int = 1) -> None:
        """The target has acknowledged these records. ``ValueError`` for a target offset below its
        end: it has lost records (``target_lost``)."""
        if target < self._target_end:
            raise ValueError(f"target offset {target} was given, {self._target_end} was next")
        if source < self._latest.source_end:
            if self._again is None:
                sampled = self._settled.complete_from == NEVER
                self._again = OffsetMap(NEVER if sampled else source, self._most)
            else:
                self._again.cut(source)
                if self._again.complete_from != NEVER:
                    self._again.complete_from = min(self._again.complete_from, source)
        self._latest.add(source, target, records)
        self._copied_to = max(self._copied_to, source + records)
        self._target_end = max(self._target_end, target + records)
        if self._again is not None and self._again.source_end >= self._settled.source_end:
            self._settled.replace_tail(self._again)
            self._again = None

    def passed(self, source: int) -> None:
        """All below is copied, or holds nothing to copy."""
        self._copied_to = max(self._copied_to, source)

    def target_ends(self, end: int) -> None:
        """The target's log ends here, behind markers too, and nothing is on its way to it."""
        self._target_end = max(self._target_end, end)

    def target_begins(self, start: int) -> None:
        """The target does not hold what is below any more."""
        self._settled.prune(start)
        if self._again is not None:
            self._again.prune(start)
        self._target_end = max(self._target_end, start)

    def target_lost(self, target: int) -> None:
        """The target has lost what it had from there on."""
        self._settled.cut_target(target)
        if self._again is not None:
            self._again.cut_target(target)
        self._target_end = target

    def translate_back(self, target: int) -> int | None:
        """The source offset from which on a reader receives every record that lies at or behind
        this one on the target; None where no pair at or before it is known."""
        again = self._again.find_source(target) if self._again is not None else None
        return self._settled.find_source(target) if again is None else again

    def translate(self, offset: int) -> Translated | None:
        """A committed source offset; None where no pair at or before it is known."""
        target, exact = self._settled.find(offset)
        if target is not None:
            return Translated(target, Precision.EXACT if exact else Precision.CONSERVATIVE)
        if not exact:
            return None
        ahead = offset > self._copied_to
        return Translated(self._target_end, Precision.AHEAD if ahead else Precision.EXACT)
