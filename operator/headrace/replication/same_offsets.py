"""Committed offsets, where a copy has its source's (``offsets.mode: Preserved``). Pure."""

from headrace.api import TopicPartition
from headrace.replication.synced_offsets import CopiedTo
from headrace.replication.translation import Precision, Translated


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
