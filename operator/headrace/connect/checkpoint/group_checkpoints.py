"""Checkpoints of consumer groups, written and applied to the target."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog, SyncedOffsetLog
from headrace.connect.checkpoint.groups import GroupPartition, copied_to, read_target_groups
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import SHARE, Admin, Committed, GroupActive, Position
from headrace.replication import (
    SHARE_GROUP,
    Applied,
    Checkpoint,
    Precision,
    StoredCheckpoint,
    Translated,
    announced,
    judge,
    next_checkpoint,
)


class PendingCheckpoint(NamedTuple):
    """A checkpoint to be written and set, and what is in the topic."""

    checkpoint: Checkpoint
    before: StoredCheckpoint | None

    @property
    def at(self) -> TopicPartition:
        """On the target."""
        return TopicPartition(self.checkpoint.topic, self.checkpoint.partition)

    def not_below(self, start: int) -> "PendingCheckpoint":
        """``start``: the first offset that the target holds."""
        offset = max(start, self.checkpoint.target_offset)
        return self._replace(checkpoint=replace(self.checkpoint, target_offset=offset))


class GroupApplier:
    """Application of checkpoints to the target's groups. One thread calls it.

    Groups are set as in MirrorMaker 2 (KIP-545), except that headrace does not move a group for
    which a consumer of the target has committed. The target checks at the commit that no member is
    active: it accepts commits only from members of a group that has any. For a share group the
    start offset is set (KIP-932), before its first use.
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
        wanted: Mapping[GroupPartition, PendingCheckpoint],
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

    def plan(
        self, wanted: Mapping[GroupPartition, PendingCheckpoint], *, back: bool = False
    ) -> None:
        """Find out what ``apply`` would do, and change nothing."""
        held, _ = self._judge(wanted, back=back)
        members = self._target.groups_with_members()
        for position, one in wanted.items():
            if position.group in members and self._differs(position, one, held.get(position)):
                self.found[position] = Applied.ACTIVE
        self._remember(wanted, held)

    def _judge(
        self, wanted: Mapping[GroupPartition, PendingCheckpoint], *, back: bool
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
        self, wanted: Mapping[GroupPartition, PendingCheckpoint], held: Mapping[GroupPartition, int]
    ) -> None:
        for at, one in wanted.items():
            is_set = self.found[at] is Applied.SET
            self.left[at] = one.checkpoint.target_offset if is_set else held.get(at)

    def keep(self, positions: Collection[GroupPartition]) -> None:
        """Forget all others."""
        self.found = {at: how for at, how in self.found.items() if at in positions}
        self.left = {at: offset for at, offset in self.left.items() if at in positions}

    def _differs(
        self, position: GroupPartition, wanted: PendingCheckpoint, held: int | None
    ) -> bool:
        set_now = self.found[position] is Applied.SET
        return set_now and held != wanted.checkpoint.target_offset

    def _set(self, wanted: Mapping[GroupPartition, PendingCheckpoint]) -> None:
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


_MOST_GROUPS = 50
"""Maximum number of groups of a task in metrics, which limits the number of series."""


class GroupCheckpoints:
    """One thread calls it."""

    def __init__(self, context: FlowContext, *, creates: bool = True) -> None:
        """Prepare to read both topics; ``creates`` says whether missing ones are created."""
        self._context = context
        self._syncs = SyncedOffsetLog(context, creates=creates)
        self._checkpoints = CheckpointLog(context, creates=creates)
        self.waiting: dict[GroupPartition, Committed] = {}
        """Committed offsets that have no checkpoint yet."""
        self.precision: dict[GroupPartition, Precision | None] = {}
        """How each was translated last; None: not at all, as no offset sync is as old."""
        self.written: dict[GroupPartition, Checkpoint] = {}
        """The last one of each."""
        self.applier = GroupApplier(context.target)
        self.unread: Mapping[str, int] = {}
        """Committed source offsets after each group's last checkpoint, at the last read: the group
        would read this many again if the source were lost then. Only groups with the highest
        numbers are included.
        """
        self.translations: Mapping[str, int] = {}
        """How many offsets were translated last with which precision; ``None`` for not at all."""
        self._kinds: dict[str, str] = {}
        """Protocol types of groups of the source: they do not change."""
        self._refused: Retriable | None = None
        """Why the offsets of some groups could not be read last."""
        self._not_set: Retriable | None = None
        """Why some groups of the target could not be set last."""

    @property
    def problem(self) -> Retriable | None:
        """Problem of groups that could not be read or set last."""
        return self._refused or self._not_set

    def read(self, groups: Iterable[str]) -> None:
        """Read the committed offsets of these groups, and the existing checkpoints."""
        self._checkpoints.prepare()
        committed, refused = self._committed(set(groups))
        self.waiting = {
            GroupPartition(group, at): one
            for group, offsets in committed.items()
            for at, one in offsets.items()
            if self._context.topics.matches(at.topic)
        }
        kept = self.precision.keys() & self.waiting.keys()
        self.precision = {position: self.precision[position] for position in kept}
        self.written = {at: one for at, one in self.written.items() if at in kept}
        self.applier.keep(kept)
        self._refused = _problem(refused.values())
        self._count_unread()

    def write(self, *, last: bool, apply: bool, back: bool = False) -> None:
        """Write the checkpoints of what is waiting and is translated exactly.

        Args:
            last: Write the others also, as well as they are known.
            apply: Set the groups of the target.
            back: Let offsets of groups that only headrace has set also move back.
        """
        translated = self._translated()
        done = {
            position: found
            for position, found in translated.items()
            if last or (found is not None and found.precision is Precision.EXACT)
        }
        wanted = {at: self._wanted(at, found) for at, found in done.items() if found is not None}
        self._put(wanted, apply=apply, back=back)
        for position, found in done.items():
            self.precision[position] = None if found is None else found.precision
            del self.waiting[position]
        self.translations = Counter(str(one) for one in self.precision.values())

    def plan(self) -> None:
        """Find out what ``write`` with all arguments would do, and change nothing."""
        translated = self._translated()
        self.precision = {at: one and one.precision for at, one in translated.items()}
        self._plan({at: self._wanted(at, one) for at, one in translated.items() if one})

    def apply_written(self) -> None:
        """Set the groups of the target to the stored checkpoints, without the source."""
        self._put(self._stored(), apply=True)

    def plan_written(self) -> None:
        """Find out what ``apply_written`` would do, and change nothing."""
        self._plan(self._stored(), back=False)

    def _plan(
        self, wanted: Mapping[GroupPartition, PendingCheckpoint], *, back: bool = True
    ) -> None:
        wanted = self._not_below_start(wanted)
        self.applier.plan(wanted, back=back)
        self._not_set = _problem(self.applier.refused)
        self.written |= {at: one.checkpoint for at, one in wanted.items()}

    def _translated(self) -> dict[GroupPartition, Translated | None]:
        self._syncs.read()
        copied = copied_to(self._context, {position.at for position in self.waiting})
        return {
            position: self._syncs.offsets.translate(position.at, one.offset, copied[position.at])
            for position, one in self.waiting.items()
        }

    def _stored(self) -> dict[GroupPartition, PendingCheckpoint]:
        self._checkpoints.prepare()
        return {
            at: PendingCheckpoint(stored.checkpoint, stored)
            for at, stored in self._checkpoints.of_flow().items()
            if self._context.spec.checkpoints.apply_to_groups
            or not stored.checkpoint.is_of_share_group
        }

    def close(self) -> None:
        """Free the clients."""
        self._syncs.close()
        self._checkpoints.close()

    def _committed(
        self, groups: set[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """Return committed offsets, and start offsets of share groups."""
        source, share = self._context.source, self._share_groups(groups)
        committed, refused = source.committed(groups - share)
        starts, unread = source.share_starts(share)
        for group, offsets in starts.items():
            committed[group] = {at: Committed(one, SHARE_GROUP) for at, one in offsets.items()}
        return committed, refused | unread

    def _share_groups(self, groups: set[str]) -> set[str]:
        if not self._context.spec.checkpoints.apply_to_groups:
            return set()  # nobody follows them
        if groups - self._kinds.keys():
            found = self._context.source.protocol_types()
            self._kinds = {group: found.get(group, "") for group in groups}
        return {group for group in groups if self._kinds[group] == SHARE}

    def _count_unread(self) -> None:
        counts = Counter[str]()
        for position, one in self.waiting.items():
            copy = target_partition(self._context, position.at)
            before = self._checkpoints.before(Checkpoint(position.group, *copy, 0, 0).key())
            behind = one.offset - before.checkpoint.source_offset if before else 0
            counts[position.group] += max(0, behind)
        # Sorting by name as well keeps the same series among equal values.
        most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        self.unread = dict(most[:_MOST_GROUPS])

    def _wanted(self, position: GroupPartition, found: Translated) -> PendingCheckpoint:
        group, at = position
        topic, committed = self._context.policy.target_topic(at.topic), self.waiting[position]
        checkpoint = Checkpoint(
            group, topic, at.partition, committed.offset, found.offset, committed.metadata
        )
        before = self._checkpoints.before(checkpoint.key())
        known = before.checkpoint if before else None
        return PendingCheckpoint(next_checkpoint(checkpoint, found.precision, known), before)

    def _put(
        self, wanted: Mapping[GroupPartition, PendingCheckpoint], *, apply: bool, back: bool = False
    ) -> None:
        wanted = self._not_below_start(wanted)
        if apply:
            self.applier.apply(wanted, self._checkpoints.write, back=back)
            self._not_set = _problem(self.applier.refused)
        else:
            # Offsets that the groups may hold from an earlier flow or spec stay known.
            self._checkpoints.write(
                StoredCheckpoint(one.checkpoint, one.before.applied if one.before else ())
                for one in wanted.values()
            )
            self.applier.keep(())
            self._not_set = None
        self.written |= {at: one.checkpoint for at, one in wanted.items()}

    def _not_below_start(
        self, wanted: Mapping[GroupPartition, PendingCheckpoint]
    ) -> dict[GroupPartition, PendingCheckpoint]:
        """Raise offsets to the start of the target's log.

        The target's retention may be shorter than the source's. With ``auto.offset.reset=latest`` a
        consumer whose offset was deleted would skip all remaining records.
        """
        ats = {one.at for one in wanted.values()}
        starts = self._context.target.known_ends(ats, Position.EARLIEST)
        return {position: one.not_below(starts.get(one.at, 0)) for position, one in wanted.items()}


def _problem(errors: Iterable[HeadraceError]) -> Retriable | None:
    why = "; ".join(map(str, errors))
    return Retriable(why[:4096]) if why else None
