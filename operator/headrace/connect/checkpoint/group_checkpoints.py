"""Checkpoints of consumer groups: written to the topic and applied to the target's groups."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from headrace.api import MAX_MESSAGE_LENGTH, TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog, SyncedOffsetLog
from headrace.connect.checkpoint.groups import (
    GroupPartition,
    copied_to,
    losses_of_pairs,
    read_progress,
    read_target_groups,
)
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import SHARE, Admin, Committed, GroupActive, Position
from headrace.replication import (
    SHARE_GROUP,
    Applied,
    Checkpoint,
    CopiedTo,
    Precision,
    StoredCheckpoint,
    Translated,
    announced,
    judge,
    may_move_back,
    next_checkpoint,
    translated_after_losses,
)


class PendingCheckpoint(NamedTuple):
    """Checkpoint to write and apply, and the stored one."""

    checkpoint: Checkpoint
    before: StoredCheckpoint | None
    is_after_loss: bool = False
    """True if the target has lost records before an offset in ``before``."""

    @property
    def at(self) -> TopicPartition:
        """Partition of the target."""
        return TopicPartition(self.checkpoint.topic, self.checkpoint.partition)

    @property
    def is_earlier(self) -> bool:
        """True if the target offset is lower than one that headrace may have set."""
        ours = self.before.ours if self.before else ()
        return self.checkpoint.target_offset < max(ours, default=0)

    @property
    def moves_back(self) -> bool:
        """True if a group with a later offset that headrace has set is moved back to it."""
        return self.is_earlier and self.may_move_back

    @property
    def may_move_back(self) -> bool:
        """True if the target has lost records, so that the group would skip records."""
        return self.is_after_loss or may_move_back(self.checkpoint, self.before)

    def within(self, start: int, end: int) -> "PendingCheckpoint":
        """Return the checkpoint with a target offset of at least ``start`` and at most ``end``."""
        offset = max(start, min(end, self.checkpoint.target_offset))
        return self._replace(checkpoint=replace(self.checkpoint, target_offset=offset))


class GroupApplier:
    """Application of checkpoints to the target's groups. Not thread-safe.

    Groups are set as in MirrorMaker 2 (KIP-545), except that headrace does not move a group for
    which a consumer of the target has committed. No consumer commits an offset after the end of the
    target's log, so headrace replaces such an offset. The target rejects the commit if the group
    has active members. The start offset of a share group is set before its first use (KIP-932).
    """

    def __init__(self, target: Admin) -> None:
        self._target = target
        self.found: dict[GroupPartition, Applied] = {}
        """Last outcome for each partition of a group."""
        self.left: dict[GroupPartition, int | None] = {}
        """Offset of each group on the target after ``apply``, or the offset that ``plan``
        predicts."""
        self.refused: dict[str, HeadraceError] = {}
        """Errors of groups that could not be read or set when they were last due."""

    def apply(
        self,
        pending: Mapping[GroupPartition, PendingCheckpoint],
        write: Callable[[Collection[StoredCheckpoint]], None],
        *,
        back: bool = False,
    ) -> None:
        """Write the checkpoints, then set the groups on the target.

        After a loss of the target, the checkpoint of a group that cannot be read is not moved back.
        When the group can be read again, the stored checkpoint shows that the group itself may be
        moved back. If the group has moved back on the source, its checkpoint follows.

        If the target rejects the commit because the group has members, the stored checkpoint states
        that its offset is not set. Otherwise the same offset, committed by a member, would count as
        set by headrace.

        Args:
            pending: Checkpoints by group and source partition.
            write: Stores checkpoints in the topic.
            back: Whether groups may be moved back, as in ``judge``.
        """
        had_members = any(self.found.get(at) is Applied.ACTIVE for at in pending)
        current, unreadable = self._judge(pending, back=back)
        if had_members:  # without a commit, which would need two checkpoints in each interval
            with suppress(HeadraceError):  # a commit finds members if not all brokers respond
                self._find_members(pending, current)

        def to_store(at: GroupPartition) -> StoredCheckpoint:
            one, how = pending[at], self.found[at]
            return announced(
                one.checkpoint,
                one.before,
                current.get(at),
                sets=how is Applied.SET or (how is Applied.ACTIVE and one.moves_back),
                readable=at.group not in unreadable,
            )

        write(
            [
                to_store(at)
                for at, one in pending.items()
                if not (at.group in unreadable and one.moves_back)
            ]
        )
        due = {at: one for at, one in pending.items() if self._differs(at, one, current.get(at))}
        self._set(due)
        if active := [at for at in due if self.found[at] is Applied.ACTIVE]:
            write([to_store(at) for at in active])
        self._remember(pending, current)

    def plan(
        self, pending: Mapping[GroupPartition, PendingCheckpoint], *, back: bool = False
    ) -> None:
        """Determine the outcome of ``apply`` without a change."""
        current, _ = self._judge(pending, back=back)
        self._find_members(pending, current)
        self._remember(pending, current)

    def _find_members(
        self,
        pending: Mapping[GroupPartition, PendingCheckpoint],
        current: Mapping[GroupPartition, int],
    ) -> None:
        members = self._target.groups_with_members()
        for position, one in pending.items():
            if position.group in members and self._differs(position, one, current.get(position)):
                self.found[position] = Applied.ACTIVE

    def _judge(
        self, pending: Mapping[GroupPartition, PendingCheckpoint], *, back: bool
    ) -> tuple[dict[GroupPartition, int], Collection[str]]:
        """Return the offsets of groups on the target, and the groups that cannot be read."""
        share = {at.group for at, one in pending.items() if one.checkpoint.is_of_share_group}
        due = {group for group, _ in pending}
        there = read_target_groups(self._target, due, share)
        held = {
            position: offset
            for position, one in pending.items()
            if (offset := there.committed_at(position.group, one.at)) is not None
        }
        self.refused = {one: why for one, why in self.refused.items() if one not in due}
        self.refused |= there.unreadable
        for position, one in pending.items():
            how = judge(
                one.checkpoint.target_offset,
                held.get(position),
                one.before.ours if one.before else (),
                used=position.group in there.used,
                back=back or one.may_move_back,
            )
            self.found[position] = Applied.REFUSED if position.group in there.unreadable else how
        foreign = {
            position: held[position]
            for position, one in pending.items()
            if self.found[position] is Applied.FOREIGN and position.group not in there.used
        }
        for position in self._impossible(foreign, pending, share):
            self.found[position] = Applied.SET
        return held, there.unreadable.keys()

    def _impossible(
        self,
        foreign: Mapping[GroupPartition, int],
        pending: Mapping[GroupPartition, PendingCheckpoint],
        share: set[str],
    ) -> Collection[GroupPartition]:
        """Return the partitions of groups with an offset after the end of the target's log.

        No consumer commits such an offset. It comes from a damaged request, or from a log that was
        truncated. No checksum covers the answers, so the offset and the end are read twice.
        """
        if not (late := self._after_end(foreign, pending)):
            return ()
        groups = {position.group for position in late}
        there = read_target_groups(self._target, groups, share & groups)
        again = {
            position: offset
            for position, offset in late.items()
            if there.committed_at(position.group, pending[position].at) == offset
        }
        return self._after_end(again, pending).keys()

    def _after_end(
        self,
        current: Mapping[GroupPartition, int],
        pending: Mapping[GroupPartition, PendingCheckpoint],
    ) -> dict[GroupPartition, int]:
        ends = self._target.known_ends({pending[position].at for position in current})
        return {
            position: offset
            for position, offset in current.items()
            if offset > ends.get(pending[position].at, offset)
        }

    def _remember(
        self,
        pending: Mapping[GroupPartition, PendingCheckpoint],
        current: Mapping[GroupPartition, int],
    ) -> None:
        for at, one in pending.items():
            is_set = self.found[at] is Applied.SET
            self.left[at] = one.checkpoint.target_offset if is_set else current.get(at)

    def keep(self, positions: Collection[GroupPartition]) -> None:
        """Forget the outcomes for all other partitions of groups."""
        self.found = {at: how for at, how in self.found.items() if at in positions}
        self.left = {at: offset for at, offset in self.left.items() if at in positions}
        groups = {group for group, _ in positions}
        self.refused = {one: why for one, why in self.refused.items() if one in groups}

    def _differs(
        self, position: GroupPartition, pending: PendingCheckpoint, current: int | None
    ) -> bool:
        set_now = self.found[position] is Applied.SET
        return set_now and current != pending.checkpoint.target_offset

    def _set(self, pending: Mapping[GroupPartition, PendingCheckpoint]) -> None:
        offsets: dict[str, dict[TopicPartition, Committed]] = {}
        starts: dict[str, dict[TopicPartition, int]] = {}
        for position, one in pending.items():
            offset = one.checkpoint.target_offset
            if one.checkpoint.is_of_share_group:
                starts.setdefault(position.group, {})[one.at] = offset
            else:
                committed = Committed(offset, one.checkpoint.metadata)
                offsets.setdefault(position.group, {})[one.at] = committed
        failed = self._target.commit(offsets) | self._target.set_share_starts(starts)
        for position in pending:
            if error := failed.get(position.group):
                active = isinstance(error, GroupActive)
                self.found[position] = Applied.ACTIVE if active else Applied.REFUSED
        self.refused |= {
            group: error for group, error in failed.items() if not isinstance(error, GroupActive)
        }


_MAX_GROUPS = 50
"""Maximum number of groups of a task in metrics, which limits the number of series."""


class GroupCheckpoints:
    """Checkpoints of groups: read, translated and written. Not thread-safe."""

    def __init__(self, context: FlowContext, *, creates: bool = True) -> None:
        """Create the object without reading.

        ``creates`` states whether missing topics are created.
        """
        self._context = context
        self._syncs = SyncedOffsetLog(context, creates=creates)
        self._checkpoints = CheckpointLog(context, creates=creates)
        self._committed: dict[GroupPartition, Committed] = {}
        """Committed source offsets at the last read."""
        self.waiting: dict[GroupPartition, Committed] = {}
        """Committed source offsets whose checkpoint is not written yet."""
        self.precision: dict[GroupPartition, Precision | None] = {}
        """Precision of each offset's last translation; None if no offset sync was old enough."""
        self.written: dict[GroupPartition, Checkpoint] = {}
        """Last written checkpoint by group and source partition."""
        self.applier = GroupApplier(context.target)
        self.unread: Mapping[str, int] = {}
        """Number of source offsets by which each group is ahead of its checkpoint, at the last
        read. The group would read these records again if the source were lost then. Only groups
        with the highest numbers are included."""
        self.translations: Mapping[str, int] = {}
        """Number of offsets by the precision of their last translation. The key ``"None"`` counts
        offsets that were not translated."""
        self._kinds: dict[str, str] = {}
        """Protocol types of source groups, which do not change."""
        self._refused: Retriable | None = None
        """Error of groups whose offsets could not be read in the last call."""
        self._not_set: Retriable | None = None
        """Error of target groups that could not be set in the last call."""

    @property
    def problem(self) -> Retriable | None:
        """Problem of groups that could not be read or set."""
        return self._refused or self._not_set

    def read(self, groups: Iterable[str]) -> None:
        """Read the committed offsets of these groups, and the existing checkpoints."""
        self._read(groups)
        self.waiting = dict(self._committed)
        self._count_unread()

    def read_again(self, groups: Iterable[str]) -> dict[GroupPartition, Committed | None]:
        """Read the groups again, and return the earlier value of each changed offset.

        The value is None for a new offset. After this call, ``waiting`` contains only the changed
        offsets.
        """
        before = self._committed
        self._read(groups)
        self.waiting = {at: one for at, one in self._committed.items() if before.get(at) != one}
        return {at: before.get(at) for at in self.waiting}

    def _read(self, groups: Iterable[str]) -> None:
        self._checkpoints.prepare()
        committed, refused = self._read_source(set(groups))
        self._committed = {
            GroupPartition(group, at): one
            for group, offsets in committed.items()
            for at, one in offsets.items()
            if self._context.topics.matches(at.topic)
        }
        kept = self.precision.keys() & self._committed.keys()
        self.precision = {position: self.precision[position] for position in kept}
        self.written = {at: one for at, one in self.written.items() if at in kept}
        self.applier.keep(kept)
        self._refused = _problem(refused.values())

    def write(self, *, last: bool, apply: bool, back: bool = False) -> None:
        """Write the checkpoints of waiting offsets that can be translated exactly.

        Args:
            last: Whether inexact translations are also written.
            apply: Whether the groups of the target are set.
            back: Whether groups that only headrace has set may be moved back.
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
        """Determine the outcome of ``write`` with all options, without a change."""
        translated = self._translated()
        self.precision = {at: one and one.precision for at, one in translated.items()}
        self._plan({at: self._wanted(at, one) for at, one in translated.items() if one})

    def apply_written(self) -> None:
        """Set the groups of the target to the stored checkpoints. The source is not read."""
        self._put(self._stored(), apply=True)

    def plan_written(self) -> None:
        """Determine the outcome of ``apply_written`` without a change."""
        self._plan(self._stored(), back=False)

    def _plan(
        self, pending: Mapping[GroupPartition, PendingCheckpoint], *, back: bool = True
    ) -> None:
        pending = self._within_log(pending)
        self.applier.plan(pending, back=back)
        self._not_set = _problem(self.applier.refused.values())
        self.written |= {at: one.checkpoint for at, one in pending.items()}

    def _translated(self) -> dict[GroupPartition, Translated | None]:
        self._syncs.read()
        copied = copied_to(self._context, {position.at for position in self.waiting})
        return {
            at: self._translate(at.at, one.offset, copied[at.at])
            for at, one in self.waiting.items()
        }

    def _translate(
        self, at: TopicPartition, offset: int, copied: CopiedTo | None
    ) -> Translated | None:
        found = self._syncs.offsets.translate(at, offset, copied)
        if found is None:
            return None
        losses = losses_of_pairs(self._context, at)
        return translated_after_losses(found, self._syncs.synced_ms(at), losses)

    def _stored(self) -> dict[GroupPartition, PendingCheckpoint]:
        if self._context.progress.exists():
            read_progress(self._context)
        self._checkpoints.prepare()
        return {
            position: self._after_losses(position.at, stored)
            for position, stored in self._checkpoints.of_flow().items()
            if self._context.spec.checkpoints.apply_to_groups
            or not stored.checkpoint.is_of_share_group
        }

    def _after_losses(self, at: TopicPartition, stored: StoredCheckpoint) -> PendingCheckpoint:
        """Return the stored checkpoint as one to apply, with an offset that is correct now."""
        stored_ms = self._checkpoints.stored_ms(stored.checkpoint.key())
        losses = losses_of_pairs(self._context, at)
        one = stored.after_losses(stored_ms, losses)
        return PendingCheckpoint(one.checkpoint, one, stored.precedes_loss(stored_ms, losses))

    def close(self) -> None:
        self._syncs.close()
        self._checkpoints.close()

    def _read_source(
        self, groups: set[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """Return committed offsets and start offsets of share groups, and errors by group.

        No checksum covers the answers. Committed offsets are read twice, and the lower one counts:
        a group that is set too far forward on the target would skip records.
        """
        source, share = self._context.source, self._share_groups(groups)
        committed, refused = source.committed(groups - share)
        if committed:
            again, refused_again = source.committed(committed.keys())
            committed = _lower(committed, again)
            refused |= refused_again
        starts, unread = source.share_starts(share)
        for group, offsets in starts.items():
            committed[group] = {at: Committed(one, SHARE_GROUP) for at, one in offsets.items()}
        return committed, refused | unread

    def _share_groups(self, groups: set[str]) -> set[str]:
        if not self._context.spec.checkpoints.apply_to_groups:
            return set()  # without applyToGroups, share groups are not followed
        if groups - self._kinds.keys():
            found = self._context.source.protocol_types()
            self._kinds = {group: found[group] for group in groups & found.keys()}
        return {group for group in groups if self._kinds.get(group) == SHARE}

    def _count_unread(self) -> None:
        counts = Counter[str]()
        for position, one in self.waiting.items():
            copy = target_partition(self._context, position.at)
            before = self._checkpoints.before(Checkpoint(position.group, *copy, 0, 0).key())
            behind = one.offset - before.checkpoint.source_offset if before else 0
            counts[position.group] += max(0, behind)
        # The name as second key keeps the same series when values are equal.
        most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        self.unread = dict(most[:_MAX_GROUPS])

    def _wanted(self, position: GroupPartition, found: Translated) -> PendingCheckpoint:
        group, at = position
        topic, committed = self._context.policy.target_topic(at.topic), self.waiting[position]
        checkpoint = Checkpoint(
            group, topic, at.partition, committed.offset, found.offset, committed.metadata
        )
        stored = self._checkpoints.before(checkpoint.key())
        if stored is None:
            return PendingCheckpoint(checkpoint, None)
        known = self._after_losses(at, stored)
        following = next_checkpoint(checkpoint, found.precision, known.checkpoint)
        return known._replace(checkpoint=following)

    def _put(
        self,
        pending: Mapping[GroupPartition, PendingCheckpoint],
        *,
        apply: bool,
        back: bool = False,
    ) -> None:
        pending = self._within_log(pending)
        if apply:
            self.applier.apply(pending, self._checkpoints.write, back=back)
            self._not_set = _problem(self.applier.refused.values())
        else:
            self._checkpoints.write([self._not_applied(at, one) for at, one in pending.items()])
            self.applier.keep(())
            self._not_set = None
        self.written |= {at: one.checkpoint for at, one in pending.items()}

    def _not_applied(self, at: GroupPartition, one: PendingCheckpoint) -> StoredCheckpoint:
        """Return the checkpoint to store if groups are not set.

        The offsets that headrace has set earlier are kept, because groups may still have them. The
        first checkpoint of a group has no header, so that the last outcome shows whether it was
        applied.
        """
        if one.before and (one.before.headers or at in self.applier.found):
            # A header is written even if the checkpoint's own offset is a kept one: without it, the
            # next checkpoint would lose the offset.
            kept = tuple(sorted(one.before.ours))
            return StoredCheckpoint(one.checkpoint, kept, is_set=one.moves_back)
        return StoredCheckpoint(one.checkpoint)

    def _within_log(
        self, pending: Mapping[GroupPartition, PendingCheckpoint]
    ) -> dict[GroupPartition, PendingCheckpoint]:
        """Move target offsets into the target's log.

        The target's retention may be shorter than the source's, and the target may have lost
        copies. With ``auto.offset.reset=latest``, a consumer whose offset does not exist would skip
        all records that exist then.
        """
        ats, target = {one.at for one in pending.values()}, self._context.target
        starts, ends = target.known_ends(ats, Position.EARLIEST), target.known_ends(ats)
        return {
            position: one.within(
                starts.get(one.at, 0), ends.get(one.at, one.checkpoint.target_offset)
            )
            for position, one in pending.items()
        }


def _lower(
    first: Mapping[str, Mapping[TopicPartition, Committed]],
    second: Mapping[str, Mapping[TopicPartition, Committed]],
) -> dict[str, dict[TopicPartition, Committed]]:
    """Return the lower answer for each committed offset that both answers contain."""
    return {
        group: {
            at: min(one, second[group][at], key=lambda committed: committed.offset)
            for at, one in offsets.items()
            if at in second[group]
        }
        for group, offsets in first.items()
        if group in second
    }


def _problem(errors: Iterable[HeadraceError]) -> Retriable | None:
    why = "; ".join(map(str, errors))
    return Retriable(why[:MAX_MESSAGE_LENGTH]) if why else None
