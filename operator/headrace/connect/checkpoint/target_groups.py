"""What groups of the target hold, consumer groups and share groups alike."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import Admin


class TargetGroups(NamedTuple):
    """By group."""

    held: Mapping[str, Mapping[TopicPartition, int]]
    """What they have committed, or their start offsets."""
    used: Collection[str]
    """Share groups that consumers have used."""
    unreadable: Mapping[str, HeadraceError]

    def held_at(self, group: str, at: TopicPartition) -> int | None:
        """Of one partition."""
        return self.held.get(group, {}).get(at)


def read_target_groups(target: Admin, groups: set[str], share: set[str]) -> TargetGroups:
    """``share``: those of ``groups`` that are share groups."""
    committed, refused = target.committed(groups - share)
    starts, without_starts = target.share_starts(share)
    used, not_described = target.used_share_groups(share)
    held = {
        group: {at: one.offset for at, one in offsets.items()}
        for group, offsets in committed.items()
    }
    return TargetGroups(held | starts, used, refused | without_starts | not_described)
