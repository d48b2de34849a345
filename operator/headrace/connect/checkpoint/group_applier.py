"""Sets the offsets of groups of the target to their checkpoints."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_positions import GroupPartition
from headrace.connect.checkpoint.target_groups import read_target_groups
from headrace.errors import HeadraceError
from headrace.kafka import Admin, Committed, GroupActive
from headrace.replication import Applied, Checkpoint, StoredCheckpoint, announced, judge


class Wanted(NamedTuple):
    """A checkpoint to be written and set, and what is in the topic."""

    checkpoint: Checkpoint
    before: StoredCheckpoint | None

    @property
    def at(self) -> TopicPartition:
        """On the target."""
        return TopicPartition(self.checkpoint.topic, self.checkpoint.partition)

    def not_below(self, start: int) -> "Wanted":
        """``start``: the first offset that the target holds."""
        offset = max(start, self.checkpoint.target_offset)
        return self._replace(checkpoint=replace(self.checkpoint, target_offset=offset))


class GroupApplier:
    """One thread calls it. As MirrorMaker 2 (KIP-545), but for groups that consumers of the target
    have committed for: these it moves forward, too.

    The target itself checks, with the commit, that nobody is active: of a group with members it
    takes theirs only. Of a share group it sets the start offset (KIP-932), before its first use.
    """

    def __init__(self, target: Admin) -> None:
        self._target = target
        self.found: dict[GroupPartition, Applied] = {}
        """How each was left last."""
        self.left: dict[GroupPartition, int | None] = {}
        """The offset that each group of the target has since, or would have after ``plan``."""
        self.refused: tuple[HeadraceError, ...] = ()
        """Why some groups could not be read or set last."""

    def apply(
        self,
        wanted: Mapping[GroupPartition, Wanted],
        write: Callable[[Collection[StoredCheckpoint]], None],
        *,
        back: bool = False,
    ) -> None:
        """Write the checkpoints, then set the groups; ``back`` as in ``judge``."""
        held, unreadable = self._judge(wanted, back=back)
        write(
            [
                announced(*one, held.get(at), readable=at.group not in unreadable)
                for at, one in wanted.items()
            ]
        )
        self._set({at: one for at, one in wanted.items() if self._differs(at, one, held.get(at))})
        self._remember(wanted, held)

    def plan(self, wanted: Mapping[GroupPartition, Wanted], *, back: bool = False) -> None:
        """Find out what ``apply`` would do, and change nothing."""
        held, _ = self._judge(wanted, back=back)
        members = self._target.groups_with_members()
        for position, one in wanted.items():
            if position.group in members and self._differs(position, one, held.get(position)):
                self.found[position] = Applied.ACTIVE
        self._remember(wanted, held)

    def _judge(
        self, wanted: Mapping[GroupPartition, Wanted], *, back: bool
    ) -> tuple[dict[GroupPartition, int], Collection[str]]:
        """Return the offsets that groups of the target hold, and the groups that are unreadable."""
        share = {at.group for at, one in wanted.items() if one.checkpoint.is_of_share_group}
        there = read_target_groups(self._target, {group for group, _ in wanted}, share)
        held = {
            position: offset
            for position, one in wanted.items()
            if (offset := there.held_at(position.group, one.at)) is not None
        }
        self.refused = tuple(there.unreadable.values())
        for position, (checkpoint, before) in wanted.items():
            ours = before.ours if before else ()
            used = position.group in there.used
            how = judge(checkpoint.target_offset, held.get(position), ours, used=used, back=back)
            self.found[position] = Applied.REFUSED if position.group in there.unreadable else how
        return held, there.unreadable.keys()

    def _remember(
        self, wanted: Mapping[GroupPartition, Wanted], held: Mapping[GroupPartition, int]
    ) -> None:
        for at, one in wanted.items():
            is_set = self.found[at] is Applied.SET
            self.left[at] = one.checkpoint.target_offset if is_set else held.get(at)

    def keep(self, positions: Collection[GroupPartition]) -> None:
        """Forget all others."""
        self.found = {at: how for at, how in self.found.items() if at in positions}
        self.left = {at: offset for at, offset in self.left.items() if at in positions}

    def _differs(self, position: GroupPartition, wanted: Wanted, held: int | None) -> bool:
        set_now = self.found[position] is Applied.SET
        return set_now and held != wanted.checkpoint.target_offset

    def _set(self, wanted: Mapping[GroupPartition, Wanted]) -> None:
        offsets: dict[str, dict[TopicPartition, Committed]] = {}
        starts: dict[str, dict[TopicPartition, int]] = {}
        for position, one in wanted.items():
            offset = one.checkpoint.target_offset
            if one.checkpoint.is_of_share_group:
                starts.setdefault(position.group, {})[one.at] = offset
            else:
                committed = Committed(offset, one.checkpoint.metadata)
                offsets.setdefault(position.group, {})[one.at] = committed
        failed = self._target.commit(offsets) | self._target.set_share_starts(starts)
        for position in wanted:
            if error := failed.get(position.group):
                active = isinstance(error, GroupActive)
                self.found[position] = Applied.ACTIVE if active else Applied.REFUSED
        refused = (error for error in failed.values() if not isinstance(error, GroupActive))
        self.refused = (*self.refused, *refused)
