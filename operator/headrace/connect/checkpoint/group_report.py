"""Report of the offsets at which a flow's consumer groups would resume. Nothing is written."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog, SyncedOffsetLog
from headrace.connect.checkpoint.groups import (
    GroupPartition,
    OtherGroups,
    UntranslatedGroup,
    copied_to,
    other_groups,
    read_target_groups,
)
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.replication import (
    Applied,
    Checkpoint,
    CopiedTo,
    Precision,
    StoredCheckpoint,
    Translated,
    judge,
)

GONE = "the group has no offset on the source any more"
WENT_BACK = "the group went back on the source; its next checkpoint follows"
NOT_WRITTEN = "no checkpoint was written yet"
NOT_COPIED = "the partition is not copied yet"
TOO_OLD = "no offset sync up to this offset is known"
EARLIER = "earlier than it could be: not every pair of offsets is known"
NOT_SET = "the group of the target is not set yet, or has members"
FOREIGN = "left alone: consumers of the target have committed"
LATER = "left alone: the group of the target is further already"
_LEFT = {Applied.SET: NOT_SET, Applied.FOREIGN: FOREIGN, Applied.LATER: LATER}


class GroupPosition(NamedTuple):
    """Offsets of a group in a partition."""

    group: str
    at: TopicPartition
    """Partition of the source."""
    committed: int | None
    """Offset committed by the group on the source; None if there is none, or if the source does not
    respond."""
    checkpoint: Checkpoint | None
    """Checkpoint in the checkpoints topic, or None."""
    note: str
    """Reason why there is no checkpoint, why it is earlier than possible, or why the target's group
    has another offset. Empty if none applies."""
    held: int | None = None
    """Offset committed by the group on the target; read only with ``applyToGroups``."""

    @property
    def lag(self) -> int | None:
        """Number of source offsets between the checkpoint and the committed offset."""
        if self.committed is None or self.checkpoint is None:
            return None
        return self.committed - self.checkpoint.source_offset


@dataclass(frozen=True)
class GroupReport:
    """Offsets of all groups that the flow follows."""

    positions: tuple[GroupPosition, ...]
    problems: tuple[str, ...]
    """Errors of reads, as sentences."""
    untranslated: tuple[UntranslatedGroup, ...] = ()
    """Groups of the source that the flow never follows."""


def report_groups(context: FlowContext) -> GroupReport:
    """Return the report of all groups.

    If the source does not respond, the report contains that problem, and the checkpoints.

    Raises:
        HeadraceError: The target could not be read.
    """
    checkpoints = _checkpoints(context)
    others = OtherGroups()
    try:
        committed, unread = _committed(context)
    except HeadraceError as error:
        positions = [GroupPosition(*at, None, one[0], "") for at, one in checkpoints.items()]
        problems = [str(error)]
    else:
        problems = list(unread.values())
        unknown = {*unread, *_of_share_groups(checkpoints)}
        try:
            others = other_groups(context)
        except HeadraceError as error:
            problems.append(str(error))
        else:
            unknown = {*unread, *others.unread, *(one.group for one in others.untranslated)}
            problems += map(str, others.unread.values())
            committed |= {
                GroupPartition(group, at): offset
                for group, starts in others.starts.items()
                for at, offset in starts.items()
            }
        notes = _Notes(context, {position.at for position in committed}, unknown)
        positions = [
            _position(at, committed.get(at), checkpoints.get(at), notes)
            for at in committed.keys() | checkpoints.keys()
        ]
    if context.spec.checkpoints.apply_to_groups:
        positions, refused = _with_held(context, positions, checkpoints, others.starts)
        problems += refused
    positions = sorted(positions, key=lambda one: one[:2])
    return GroupReport(tuple(positions), tuple(problems), others.untranslated)


def _position(
    at: GroupPartition, committed: int | None, stored: StoredCheckpoint | None, notes: "_Notes"
) -> GroupPosition:
    checkpoint = stored.checkpoint if stored else None
    return GroupPosition(*at, committed, checkpoint, notes.of(at, committed, checkpoint))


def _with_held(
    context: FlowContext,
    positions: Iterable[GroupPosition],
    checkpoints: Mapping[GroupPartition, StoredCheckpoint],
    share_groups: Iterable[str],
) -> tuple[list[GroupPosition], list[str]]:
    """Add the target groups' committed offsets, and notes on differences; also return errors."""
    positions = list(positions)
    groups = {one.group for one in positions}
    share = groups & {*_of_share_groups(checkpoints), *share_groups}
    there = read_target_groups(context.target, groups, share)
    found = []
    for one in positions:
        copy = TopicPartition(context.policy.target_topic(one.at.topic), one.at.partition)
        held = there.committed_at(one.group, copy)
        note, stored = one.note, checkpoints.get(GroupPartition(one.group, one.at))
        if stored and held != stored.checkpoint.target_offset and one.group not in there.unreadable:
            used, wanted = one.group in there.used, stored.checkpoint.target_offset
            left = _LEFT[judge(wanted, held, stored.ours, used=used, back=stored.is_set)]
            note = f"{note}; {left}" if note else left
        found.append(one._replace(note=note, held=held))
    return found, [str(error) for error in there.unreadable.values()]


def _of_share_groups(checkpoints: Mapping[GroupPartition, StoredCheckpoint]) -> set[str]:
    return {at.group for at, one in checkpoints.items() if one.checkpoint.is_of_share_group}


def _checkpoints(context: FlowContext) -> dict[GroupPartition, StoredCheckpoint]:
    if not context.target.describe([context.checkpoints_topic]):
        return {}  # reading would create the topic
    log = CheckpointLog(context)
    try:
        log.prepare()
    finally:
        log.close()
    return log.of_flow()


def _committed(context: FlowContext) -> tuple[dict[GroupPartition, int], dict[str, str]]:
    """Return committed offsets, and an error for each group that cannot be read."""
    groups = {group for group in context.source.groups() if context.groups.matches(group)}
    committed, refused = context.source.committed(groups)
    found = {
        GroupPartition(group, at): one.offset
        for group, offsets in committed.items()
        for at, one in offsets.items()
        if context.topics.matches(at.topic)
    }
    return found, {group: str(error) for group, error in refused.items()}


class _Notes:
    """Texts for ``GroupPosition.note``."""

    def __init__(
        self,
        context: FlowContext,
        partitions: Iterable[TopicPartition],
        unread: Container[str],
    ) -> None:
        """Read progress and offset syncs.

        ``unread`` contains the groups whose source offsets are unknown.
        """
        self._unread = unread
        self._copied_to = _copied_to(context, partitions)
        self._syncs = SyncedOffsetLog(context)
        if context.offset_syncs_admin.describe([context.offset_syncs.topic]):
            try:
                self._syncs.read()
            finally:
                self._syncs.close()

    def of(
        self, position: GroupPartition, committed: int | None, checkpoint: Checkpoint | None
    ) -> str:
        group, at = position
        if committed is None:
            return "" if group in self._unread else GONE
        copied = self._copied_to.get(at)
        translated = self._syncs.offsets.translate(at, committed, copied)
        if translated is None:
            return NOT_COPIED if copied is None and at not in self._syncs.offsets else TOO_OLD
        if checkpoint is None:
            return NOT_WRITTEN
        if committed < checkpoint.source_offset:
            return WENT_BACK
        return _imprecise(translated, copied)


def _imprecise(translated: Translated, copied: CopiedTo | None) -> str:
    if translated.precision is Precision.AHEAD and copied is not None:
        return f"ahead of the copy, which ends at source offset {copied.source_offset}"
    return EARLIER if translated.precision is Precision.CONSERVATIVE else ""


def _copied_to(
    context: FlowContext, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, CopiedTo | None]:
    if not context.progress.exists():
        return {}  # following it would create the topic
    return copied_to(context, partitions)
