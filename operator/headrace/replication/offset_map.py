"""Which source offset is which target offset, of one partition: ranges in a bounded space. Pure.

A range is a run of records whose offsets ascend by one on both sides. Holes that compaction left,
markers and skipped records begin a new range; a partition without any is a single range for ever.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

MOST_RANGES = 1024
"""Of a partition. A range takes 24 bytes of memory."""

NEVER = (1 << 63) - 1
"""As ``complete_from``: no offset."""


class Range(NamedTuple):
    """``records`` records from ``source`` on, which are on the target from ``target`` on."""

    source: int
    target: int
    records: int


class Found(NamedTuple):
    """What is known of the first record at or behind a source offset."""

    target: int | None
    """Its target offset, or where to begin so that it is not skipped. None: it lies before all that
    is known, or behind it."""
    exact: bool


class OffsetMap:
    """Pairs of offsets that ascend on both sides, as ranges.

    From ``complete_from`` on there is a pair for each record that was copied. Below, offsets
    between two ranges may belong to records whose pairs are not known; MirrorMaker 2's rule goes
    for them: behind the last pair that is known, and no further.
    """

    def __init__(self, complete_from: int = 0, most: int = MOST_RANGES) -> None:
        """``most``: ranges that are kept, at least 2; beyond, every second one of the older half
        is forgotten, so that the map gets the coarser, the older its offsets are."""
        self.complete_from = complete_from
        self._most = most
        self._floor: int | None = None
        """Where the target's log begins, if pairs were forgotten for that."""
        self._sources, self._targets, self._records = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Range]:
        return map(Range, self._sources, self._targets, self._records)

    @property
    def first(self) -> Range | None:
        """The oldest range."""
        return next(iter(self), None)

    @property
    def source_end(self) -> int:
        """Behind the last pair; 0 where there is none."""
        return self._sources[-1] + self._records[-1] if self else 0

    @property
    def target_end(self) -> int:
        """Behind the last pair; 0 where there is none."""
        return self._targets[-1] + self._records[-1] if self else 0

    def add(self, source: int, target: int, records: int = 1) -> None:
        """These records were copied; ``ValueError`` unless both offsets lie behind all pairs."""
        if source < self.source_end or target < self.target_end:
            raise ValueError(
                f"pair {source} -> {target} does not follow {self.source_end} -> {self.target_end}"
            )
        if self and (source, target) == (self.source_end, self.target_end):
            self._records[-1] += records
            return
        self._sources.append(source)
        self._targets.append(target)
        self._records.append(records)
        if len(self) > self._most:
            self._thin_out()

    def find(self, offset: int) -> Found:
        """The first record at or behind a source offset."""
        before = bisect_right(self._sources, offset) - 1
        if before >= 0 and offset < self._sources[before] + self._records[before]:
            return Found(self._targets[before] + offset - self._sources[before], exact=True)
        if offset >= self.complete_from:
            following = self._targets[before + 1] if before + 1 < len(self) else None
            return Found(following, exact=True)
        if before < 0:
            return Found(self._floor, exact=False)
        behind = self._targets[before] + self._records[before]
        # Where the next range follows at once, the target has no room for what would be unknown.
        known = before + 1 < len(self) and self._targets[before + 1] == behind
        return Found(behind, exact=known)

    def find_source(self, target: int) -> int | None:
        """The way back: from which source offset on a reader receives every record that is on the
        target at or behind this offset, and no earlier one where the pairs are known. None: it lies
        before all of them."""
        before = bisect_right(self._targets, target) - 1
        if before < 0:
            return None
        return self._sources[before] + min(target - self._targets[before], self._records[before])

    def cut(self, source: int) -> None:
        """Forget the pairs from this source offset on."""
        self._cut(self._sources, source)

    def cut_target(self, target: int) -> None:
        """Forget the pairs from this target offset on: the target has lost these records."""
        self._cut(self._targets, target)

    def _cut(self, side: "array[int]", offset: int) -> None:
        keep = bisect_left(side, offset)
        if keep and (over := side[keep - 1] + self._records[keep - 1] - offset) > 0:
            self._records[keep - 1] -= over
        del self._sources[keep:], self._targets[keep:], self._records[keep:]

    def prune(self, target_start: int) -> None:
        """The target's log begins here now: forget the pairs of what it does not hold any more.

        For the offsets of these, what is left is the first that can be read.
        """
        gone = bisect_right(self._targets, target_start) - 1
        if gone < 0:
            return
        cut = min(target_start - self._targets[gone], self._records[gone])
        if self._sources[gone] + cut >= self.complete_from:
            self.complete_from = 0  # no pair is unknown of what the target holds
        self._floor = target_start
        self._sources[gone] += cut
        self._targets[gone] += cut
        self._records[gone] -= cut
        gone += not self._records[gone]
        del self._sources[:gone], self._targets[:gone], self._records[:gone]

    def replace_tail(self, tail: "OffsetMap") -> None:
        """From the first pair of ``tail`` on, what it says goes instead."""
        if (first := tail.first) is None:
            return
        self.cut(first.source)
        thinned = tail.complete_from > first.source
        self.complete_from = (
            tail.complete_from if thinned else min(self.complete_from, first.source)
        )
        for one in tail:
            self.add(*one)

    def _thin_out(self) -> None:
        half = len(self) // 2
        self.complete_from = max(self.complete_from, self._sources[half])
        for side in (self._sources, self._targets, self._records):
            del side[1:half:2]
