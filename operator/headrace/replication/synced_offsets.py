"""Committed source offsets, translated by what the offset syncs of a flow say. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.replication.offset_map import NEVER
from headrace.replication.offset_syncs import OffsetSync
from headrace.replication.translation import Precision, Translated, Translation


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
