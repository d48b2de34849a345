"""Translates the source's offsets to the target's.

A committed source offset is translated to a target offset. From there, a reader receives every
copied record at or after the source offset, in the source's order. The result is the largest such
offset. Usually it is the offset of the very next record. At the end of the copy, it is the end of
the target's log.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.replication.mirror_maker_formats import OffsetSync

# Maps source offsets of one partition to target offsets, by ranges in limited memory. No I/O. In a
# range, offsets ascend by one on both sides. Gaps by compaction, markers and skipped records begin
# a new range. A partition without gaps has a single range.

MAX_RANGES = 1024
"""Maximum number of ranges of a partition. A range needs 24 bytes of memory."""

NEVER = (1 << 63) - 1
"""Value of ``complete_from`` that stands for no offset."""


class OffsetMapping(NamedTuple):
    """A range of records that starts at ``source``, and on the target at ``target``."""

    source: int
    target: int
    records: int


class OffsetLookup(NamedTuple):
    """Result of a search for the first record at or after a source offset."""

    target: int | None
    """Target offset of the record, or an earlier one from which a reader does not skip it.

    None if the record is before or after all known records.
    """
    exact: bool


class OffsetMap:
    """Pairs of source and target offsets in ascending order, stored as ranges.

    From ``complete_from`` on there is a pair for each record that was copied. Below, offsets
    between two ranges may belong to records whose pairs are unknown. As in MirrorMaker 2, they are
    translated to the offset after the last known pair.
    """

    def __init__(self, complete_from: int = 0, max_ranges: int = MAX_RANGES) -> None:
        """Create an empty map that keeps at most ``max_ranges`` ranges, at least 2.

        Beyond the maximum, every second range of the older half is forgotten. The map is therefore
        coarser for older offsets.
        """
        self.complete_from = complete_from
        self._most = max_ranges
        self._sources, self._targets, self._records = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[OffsetMapping]:
        return map(OffsetMapping, self._sources, self._targets, self._records)

    @property
    def first(self) -> OffsetMapping | None:
        """Oldest range, or None."""
        return next(iter(self), None)

    @property
    def source_end(self) -> int:
        """Source offset after the last pair, or 0 if there is none."""
        return self._sources[-1] + self._records[-1] if self else 0

    @property
    def target_end(self) -> int:
        """Target offset after the last pair, or 0 if there is none."""
        return self._targets[-1] + self._records[-1] if self else 0

    def add(self, source: int, target: int, records: int = 1) -> None:
        """Add copied records. Raise ``ValueError`` unless both offsets are after all pairs."""
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
        """Find the first record at or after a source offset."""
        before = bisect_right(self._sources, offset) - 1
        if before >= 0 and offset < self._sources[before] + self._records[before]:
            return OffsetLookup(self._targets[before] + offset - self._sources[before], exact=True)
        if offset >= self.complete_from:
            following = self._targets[before + 1] if before + 1 < len(self) else None
            return OffsetLookup(following, exact=True)
        if before < 0:
            return OffsetLookup(None, exact=False)
        behind = self._targets[before] + self._records[before]
        # If the next range follows immediately, the target has no unknown records in between.
        known = before + 1 < len(self) and self._targets[before + 1] == behind
        return OffsetLookup(behind, exact=known)

    def find_source(self, target: int) -> int | None:
        """Return the source offset from which a reader receives each record at or after ``target``.

        If all pairs are known, the reader receives no earlier record. None means that the offset is
        before all pairs.
        """
        before = bisect_right(self._targets, target) - 1
        if before < 0:
            return None
        return self._sources[before] + min(target - self._targets[before], self._records[before])

    def cut(self, source: int) -> None:
        """Forget the pairs from this source offset on."""
        self._cut(self._sources, source)

    def cut_target(self, target: int) -> None:
        """Forget the pairs from this target offset on. The target has lost these records."""
        self._cut(self._targets, target)

    def _cut(self, side: "array[int]", offset: int) -> None:
        keep = bisect_left(side, offset)
        if keep and (over := side[keep - 1] + self._records[keep - 1] - offset) > 0:
            self._records[keep - 1] -= over
        del self._sources[keep:], self._targets[keep:], self._records[keep:]

    def replace_tail(self, tail: "OffsetMap") -> None:
        """Replace all pairs from the first pair of ``tail`` on by the pairs of ``tail``."""
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
    """Precision of a translation. No translation skips a record."""

    EXACT = "Exact"
    CONSERVATIVE = "Conservative"
    """Some records are read again, because not every pair is known. As in MirrorMaker 2."""
    AHEAD = "Ahead"
    """The source offset is not copied yet, and the result is the end of the copy."""


class Translated(NamedTuple):
    """A translated offset on the target."""

    offset: int
    precision: Precision


class Translation:
    """Translation of the offsets of one partition, from its copied records.

    A copy that resumes at an earlier offset repeats records. Until it has passed the records that
    were copied before, only the earlier copies lead to all records in order. Afterwards the later
    copies are used, because they are not repeated again.
    """

    def __init__(self, begins: int, *, complete_from: int, max_ranges: int = MAX_RANGES) -> None:
        """Start a translation at the next source offset to copy.

        Args:
            begins: Next source offset to copy.
            complete_from: First source offset from which every copied record is reported to this
                object. ``NEVER`` if only samples are reported, as with offset syncs.
            max_ranges: Maximum number of ranges of each map.
        """
        self._most = max_ranges
        self._settled = OffsetMap(complete_from, max_ranges)
        self._again: OffsetMap | None = None
        """Pairs of a copy that resumed at an earlier offset and has not passed ``_settled`` yet."""
        self._copied_to = begins
        self._target_end = 0

    def __len__(self) -> int:
        """Return the number of stored ranges."""
        return len(self._settled) + (0 if self._again is None else len(self._again))

    @property
    def source_end(self) -> int:
        """Source offset after the last record of the copies that lead to all records."""
        return self._settled.source_end

    @property
    def _latest(self) -> OffsetMap:
        return self._settled if self._again is None else self._again

    def copied(self, source: int, target: int, records: int = 1) -> None:
        """Add records that the target has acknowledged.

        Raise ``ValueError`` for a target offset below the target's end. In that case the target has
        lost records, and ``target_lost`` must be called first.
        """
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
        """Record that all offsets below ``source`` are copied or contain no record to copy."""
        self._copied_to = max(self._copied_to, source)

    def target_ends(self, end: int) -> None:
        """Set the target's log end, after all markers.

        No request to the target may be in flight.
        """
        self._target_end = max(self._target_end, end)

    def target_lost(self, target: int) -> None:
        """Forget the records that the target has lost from this offset on."""
        self._settled.cut_target(target)
        if self._again is not None:
            self._again.cut_target(target)
        self._target_end = target

    def translate_back(self, target: int) -> int | None:
        """Return the source offset from which a reader receives each record at or after ``target``.

        None means that no pair at or before ``target`` is known.
        """
        again = self._again.find_source(target) if self._again is not None else None
        return self._settled.find_source(target) if again is None else again

    def translate(self, offset: int) -> Translated | None:
        """Translate a committed source offset. Return None if no pair at or before it is known."""
        target, exact = self._settled.find(offset)
        if target is not None:
            return Translated(target, Precision.EXACT if exact else Precision.CONSERVATIVE)
        if not exact:
            return None
        ahead = offset > self._copied_to
        return Translated(self._target_end, Precision.AHEAD if ahead else Precision.EXACT)


class CopiedTo(NamedTuple):
    """Offsets up to which a partition is copied, from its progress."""

    source_offset: int
    """Next source offset to copy. All copied records below it are on the target."""
    target_offset: int
    """Target offset after the last acknowledged record."""


@dataclass
class _Partition:
    translation: Translation
    last: OffsetSync
    contiguity_id: bytes | None


class SyncedOffsets:
    """Translations of all partitions, built from syncs in the order of their log.

    In the compacted part of the log, only the last sync of each partition remains. After it, all
    syncs remain. Compaction does not change what two consecutive remaining syncs say about the
    offsets between them.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, at: TopicPartition) -> bool:
        return at in self._partitions

    def take(self, sync: OffsetSync, contiguity_id: bytes | None) -> None:
        """Add a sync.

        Args:
            sync: Next sync of the log.
            contiguity_id: Value of the sync's header ``STRETCH``, or None if it has no such header.
        """
        at = TopicPartition(sync.topic, sync.partition)
        known = self._partitions.get(at)
        if known is None:
            known = _Partition(Translation(0, complete_from=NEVER), sync, contiguity_id)
            known.translation.copied(sync.source_offset, sync.target_offset)
            self._partitions[at] = known
            return
        if sync == known.last:
            known.contiguity_id = contiguity_id
            return
        sources = sync.source_offset - known.last.source_offset
        targets = sync.target_offset - known.last.target_offset
        if targets <= 0:
            known.translation.target_lost(sync.target_offset)
            sources = 0
        if (
            contiguity_id is not None
            and contiguity_id == known.contiguity_id
            and sources == targets
        ):
            last = known.last
            known.translation.copied(last.source_offset + 1, last.target_offset + 1, sources)
        else:
            known.translation.copied(sync.source_offset, sync.target_offset)
        known.last, known.contiguity_id = sync, contiguity_id

    def translate_back(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> int | None:
        """Translate an offset that was committed on the target to a source offset.

        All target records from ``offset`` on have source offsets at or above the result. None means
        that no pair at or before ``offset`` is known. After the last copied record, the result is
        the source offset up to which records were copied.
        """
        if copied_to is not None and offset >= copied_to.target_offset:
            return copied_to.source_offset
        known = self._partitions.get(at)
        return None if known is None else known.translation.translate_back(offset)

    def translate(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> Translated | None:
        """Translate a committed source offset. Return None if no pair at or before it is known.

        ``copied_to`` supplies the end of the copy for records without a known pair.
        """
        known = self._partitions.get(at)
        translated = None if known is None else known.translation.translate(offset)
        if copied_to is None or (known is not None and offset <= known.last.source_offset):
            return translated
        if known is not None and offset < known.translation.source_end:
            return translated  # the copy resumed at an earlier offset, and has not passed this one
        source, target = copied_to
        if offset >= source:  # the next record gets this target offset or a later one
            least = target if translated is None else max(target, translated.offset)
            return Translated(least, Precision.AHEAD if offset > source else Precision.EXACT)
        if translated is not None and translated.offset == target:  # no record is in between
            return translated._replace(precision=Precision.EXACT)
        return translated


class SameOffsets:
    """Translation without pairs, for copies that have their source's offsets."""

    def __contains__(self, at: TopicPartition) -> bool:
        return True

    def translate(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> Translated | None:
        """Return the offset unchanged, or the end of the copy if the copy is not that far.

        None means that the copy has not begun.
        """
        if copied_to is None or copied_to.target_offset < copied_to.source_offset:
            return None
        end = copied_to.target_offset
        if offset > end:
            return Translated(end, Precision.AHEAD)
        return Translated(offset, Precision.EXACT)

    def translate_back(
        self, at: TopicPartition, offset: int, copied_to: CopiedTo | None
    ) -> int | None:
        """Return the offset unchanged, or the copy's end if the source never had the offset."""
        return offset if copied_to is None else min(offset, copied_to.source_offset)
