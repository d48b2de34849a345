"""Translation of the source's offsets to the target's.

A committed source offset is translated to the largest target offset from which a reader receives
every record that the target holds of the source's from there on, in the source's order. That is the
offset of the very next record; at the end of the copy, the end of the target's log.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.replication.mirror_maker_formats import OffsetSync

# Which source offset is which target offset, of one partition: ranges in a bounded space. Pure.
#
# A range is a run of records whose offsets ascend by one on both sides. Holes that compaction left,
# markers and skipped records begin a new range; a partition without any is a single range for ever.

MOST_RANGES = 1024
"""Of a partition. A range takes 24 bytes of memory."""

NEVER = (1 << 63) - 1
"""As ``complete_from``: no offset."""


class OffsetMapping(NamedTuple):
    """``records`` records from ``source`` on, which are on the target from ``target`` on."""

    source: int
    target: int
    records: int


class OffsetLookup(NamedTuple):
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

    def __iter__(self) -> Iterator[OffsetMapping]:
        return map(OffsetMapping, self._sources, self._targets, self._records)

    @property
    def first(self) -> OffsetMapping | None:
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

    def find(self, offset: int) -> OffsetLookup:
        """The first record at or behind a source offset."""
        before = bisect_right(self._sources, offset) - 1
        if before >= 0 and offset < self._sources[before] + self._records[before]:
            return OffsetLookup(self._targets[before] + offset - self._sources[before], exact=True)
        if offset >= self.complete_from:
            following = self._targets[before + 1] if before + 1 < len(self) else None
            return OffsetLookup(following, exact=True)
        if before < 0:
            return OffsetLookup(self._floor, exact=False)
        behind = self._targets[before] + self._records[before]
        # Where the next range follows at once, the target has no room for what would be unknown.
        known = before + 1 < len(self) and self._targets[before + 1] == behind
        return OffsetLookup(behind, exact=known)

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


class CopiedTo(NamedTuple):
    """How far a partition is copied, as its progress says."""

    source_offset: int
    """The next to be copied: all below are on the target."""
    target_offset: int
    """The next on the target, behind the last that was acknowledged."""


@dataclass
class _Partition:
    translation: Translation
    last: OffsetSync
    stretch: bytes | None


class SyncedOffsets:
    """Of all partitions; syncs are taken in the order of their log.

    Compaction leaves, of each partition, one sync and all those behind it: what two that follow
    each other say of the records between them stays true.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, at: TopicPartition) -> bool:
        return at in self._partitions

    def take(self, sync: OffsetSync, stretch: bytes | None) -> None:
        """``stretch``: the value of its header ``STRETCH``, if it has one."""
        at = TopicPartition(sync.topic, sync.partition)
        known = self._partitions.get(at)
        if known is None:
            known = _Partition(Translation(0, complete_from=NEVER), sync, stretch)
            known.translation.copied(sync.source_offset, sync.target_offset)
            self._partitions[at] = known
            return
        if sync == known.last:
            known.stretch = stretch
            return
        sources = sync.source_offset - known.last.source_offset
        targets = sync.target_offset - known.last.target_offset
        if targets <= 0:
            known.translation.target_lost(sync.target_offset)
            sources = 0
        if stretch is not None and stretch == known.stretch and sources == targets:
            last = known.last
            known.translation.copied(last.source_offset + 1, last.target_offset + 1, sources)
        else:
            known.translation.copied(sync.source_offset, sync.target_offset)
        known.last, known.stretch = sync, stretch

    def translate_back(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> int | None:
        """An offset that was committed on the target, as one of the source: no record that lies at
        or behind it on the target lies before it on the source. None where no pair at or before it
        is known. Behind the copy it is the end of what was copied."""
        if copied_to is not None and offset >= copied_to.target_offset:
            return copied_to.source_offset
        known = self._partitions.get(at)
        return None if known is None else known.translation.translate_back(offset)

    def translate(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> Translated | None:
        """A committed source offset; None where no pair at or before it is known.

        ``copied_to`` gives the end of the copy from records of which no pair is known yet.
        """
        known = self._partitions.get(at)
        translated = None if known is None else known.translation.translate(offset)
        if copied_to is None or (known is not None and offset <= known.last.source_offset):
            return translated
        source, target = copied_to
        if offset >= source:  # the very next record comes to this place of the target, or later
            least = target if translated is None else max(target, translated.offset)
            return Translated(least, Precision.AHEAD if offset > source else Precision.EXACT)
        if translated is not None and translated.offset == target:  # nothing lies between
            return translated._replace(precision=Precision.EXACT)
        return translated


class SameOffsets:
    """In the place of ``SyncedOffsets``: no pair of offsets has to be known."""

    def __contains__(self, at: TopicPartition) -> bool:
        return True

    def translate(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> Translated | None:
        """As it is; the end of the copy, as long as the copy does not go that far. None before the
        copy has begun."""
        if copied_to is None or copied_to.target_offset < copied_to.source_offset:
            return None
        end = copied_to.target_offset
        if offset > end:
            return Translated(end, Precision.AHEAD)
        return Translated(offset, Precision.EXACT)

    def translate_back(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> int | None:
        """As it is; behind the copy, which the source never had, it is the end of what was
        copied."""
        return offset if copied_to is None else min(offset, copied_to.source_offset)
