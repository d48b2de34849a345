"""Fail-back after a fail-over: the start of the reverse flow, and groups that return.

Each group has continued on the target, among the copied records or after them. On the source it
resumes at the same record, whose offset is translated backwards. A group after the copied records
resumes at the source offset where the copy ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog, SyncedOffsetLog
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.failover.survey import Survey
from headrace.connect.failover.switch import Beginning, store_beginnings
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError, InvalidSpec
from headrace.kafka import Committed, GroupActive, Position
from headrace.replication import Applied, Checkpoint, CopiedTo, Progress, StoredCheckpoint, judge


class ReverseStart(NamedTuple):
    """Offsets at which the reverse flow begins a partition."""

    source_offset: int
    """Offset on the reverse flow's source, which is the former target."""
    target_offset: int
    """Offset on the reverse flow's target: the end of the old source's log."""
    unreplicated_count: int
    """Number of offsets of the old source that were never copied. New copies follow these
    records."""
    progress: Progress | None
    """Stored progress of the reverse flow, or None."""

    @property
    def made(self) -> bool:
        """Whether the reverse flow has already begun after this fail-over."""
        one = self.progress
        return one is not None and one.switch is None and one.source_offset >= self.source_offset


def check_switched(forward: FlowContext, found: Survey) -> None:
    """Raise ``InvalidSpec`` if a partition is not failed over."""
    if open_ := [at for at, one in found.partitions.items() if one.switch is None]:
        raise InvalidSpec(
            f"{forward.name} is not failed over ({min(open_)} has no switch): "
            f"`headrace failover {forward.name}` comes first"
        )


def unreplicated_offsets(
    found: Survey, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the number of offsets of the old source below ``ends`` that were never copied.

    Partitions without such offsets are left out.
    """
    return {
        at: more
        for at, one in found.partitions.items()
        if one.stored and (more := ends[at] - one.stored.source_offset) > 0
    }


def survey_back(
    forward: FlowContext, back: FlowContext, found: Survey
) -> dict[TopicPartition, ReverseStart]:
    """Return where ``back``, the reverse of the failed-over flow ``forward``, begins.

    Raises:
        InvalidSpec: The flow is not failed over, or the reverse flow copied before the fail-over.
    """
    check_switched(forward, found)
    ends = back.target.offsets(found.partitions, Position.LATEST)
    back.progress.start()
    back.progress.read_to_end()
    left, begins = unreplicated_offsets(found, ends), {}
    for at, one in found.partitions.items():
        assert one.switch is not None
        begins[at] = ReverseStart(one.switch.target_end, ends[at], left.get(at, 0), back.stored(at))
    for at, begin in begins.items():
        stored = begin.progress
        if stored is not None and stored.switch is None and not begin.made:
            raise InvalidSpec(
                f"a flow copies {at} from {back.source.name} to {back.target.name} already, and is "
                f"at offset {stored.source_offset}, before the fail-over: stop it, and fail it over"
            )
    return begins


def begin(back: FlowContext, begins: Mapping[TopicPartition, ReverseStart]) -> None:
    """Store where the reverse flow begins. Partitions that have already begun are unchanged.

    Raises:
        Retriable: The progress could not be stored.
    """
    begins = {at: one for at, one in begins.items() if not one.made}
    store_beginnings(
        back,
        "reverse",
        {
            at: Beginning(one.source_offset, one.target_offset, one.progress)
            for at, one in begins.items()
        },
    )


def hand_over_groups(forward: FlowContext, back: FlowContext) -> None:
    """Mark the groups' offsets on the old source as offsets that headrace may change.

    They are the offsets from before the fail-over, because consumers have moved to the target. The
    marks are stored as first checkpoints of the reverse flow.

    Raises:
        HeadraceError: The offsets of a group could not be read. The call can be repeated.
    """
    forward_log, backward_log = CheckpointLog(forward), CheckpointLog(back)
    try:
        forward_log.prepare()
        written = forward_log.of_flow()
        committed, refused = back.target.committed({group for group, _ in written})
        for error in refused.values():
            raise error
        backward_log.prepare()
        made = []
        for (group, at), stored in written.items():
            held = committed.get(group, {}).get(at)
            here = stored.checkpoint.target_offset
            if held is not None:
                one = Checkpoint(group, at.topic, at.partition, here, held.offset, held.metadata)
                known = backward_log.before(one.key())
                if known is None or known.checkpoint.source_offset < here:
                    made.append(StoredCheckpoint(one, (held.offset,), is_set=False))
        backward_log.write(made)
    finally:
        forward_log.close()
        backward_log.close()


@dataclass
class Returned:
    """Outcome of ``return_groups``. Offsets are offsets of the old source."""

    moved: dict[GroupPartition, int] = field(default_factory=dict)
    kept: dict[GroupPartition, Applied] = field(default_factory=dict)
    """Groups that are not set, with the reason."""
    unknown: set[GroupPartition] = field(default_factory=set)
    """Groups without an old enough offset sync. They keep their offsets on the source."""
    problems: tuple[HeadraceError, ...] = ()
    """Errors of groups that could not be read or set."""


def return_groups(forward: FlowContext, found: Survey, *, dry_run: bool) -> Returned:
    """Set the groups on the source of the failed-over flow ``forward``.

    A group is set only if it has no members on the source, and if no consumer of the source has
    committed since the fail-over. No group is moved to a lower offset.

    Raises:
        HeadraceError: A cluster could not be read.
    """
    checkpoints, syncs = CheckpointLog(forward), SyncedOffsetLog(forward)
    try:
        checkpoints.prepare()
        syncs.read()
        return _return(forward, found, checkpoints, syncs, dry_run=dry_run)
    finally:
        checkpoints.close()
        syncs.close()


def _return(
    forward: FlowContext,
    found: Survey,
    checkpoints: CheckpointLog,
    syncs: SyncedOffsetLog,
    *,
    dry_run: bool,
) -> Returned:
    written = checkpoints.of_flow()
    held_there, unread_there = _committed(forward, found, {group for group, _ in written})
    held, unread = forward.source.committed({group for group, _ in held_there})
    returned = Returned(problems=(*unread_there.values(), *unread.values()))
    wanted: dict[str, dict[TopicPartition, Committed]] = {}
    for position, one in held_there.items():
        group, at = position
        if group in unread:
            continue
        back = syncs.offsets.translate_back(at, one.offset, _copied_to(found, at))
        if back is None:
            returned.unknown.add(position)
            continue
        now = held.get(group, {}).get(at)
        how = judge(back, now.offset if now else None, _ours(written.get(position)))
        if how is Applied.SET:
            returned.moved[position] = back
            wanted.setdefault(group, {})[at] = Committed(back, one.metadata)
        else:
            returned.kept[position] = how
    if not dry_run:
        _set(forward, wanted, returned)
        # The checkpoints record the current offsets of both clusters, for the flow and later
        # commands.
        checkpoints.write(
            _left_there(forward, position, back, held_there[position].offset)
            for position, back in returned.moved.items()
        )
    return returned


def _left_there(
    forward: FlowContext, position: GroupPartition, back: int, held: int
) -> StoredCheckpoint:
    """Return the checkpoint of a group that has left the target at the offset ``held``."""
    copy = target_partition(forward, position.at)
    return StoredCheckpoint(Checkpoint(position.group, *copy, back, held), (held,), is_set=False)


def _committed(
    forward: FlowContext, found: Survey, groups: Iterable[str]
) -> tuple[dict[GroupPartition, Committed], Mapping[str, HeadraceError]]:
    """Return offsets committed on the target, by source partition, and errors by group."""
    source = {target_partition(forward, at): at for at in found.partitions}
    names = {group for group in forward.target.groups() if forward.groups.matches(group)}
    committed, unread = forward.target.committed(names | set(groups))
    return {
        GroupPartition(group, source[copy]): one
        for group, offsets in committed.items()
        for copy, one in offsets.items()
        if copy in source
    }, unread


def _copied_to(found: Survey, at: TopicPartition) -> CopiedTo | None:
    """Return the end of the copy at the fail-over. Later records were never on the source."""
    one = found.partitions[at]
    if one.stored is None or one.switch is None:
        return None
    return CopiedTo(one.stored.source_offset, one.stored.target_offset)


def _ours(stored: StoredCheckpoint | None) -> frozenset[int]:
    """Return the group's offset on the source at the fail-over."""
    return frozenset({stored.checkpoint.source_offset}) if stored else frozenset()


def _set(
    forward: FlowContext, offsets: Mapping[str, Mapping[TopicPartition, Committed]], to: Returned
) -> None:
    failed = forward.source.commit(offsets)
    for position in [one for one in to.moved if one.group in failed]:
        active = isinstance(failed[position.group], GroupActive)
        to.kept[position] = Applied.ACTIVE if active else Applied.REFUSED
        del to.moved[position]
    refused = (error for error in failed.values() if not isinstance(error, GroupActive))
    to.problems = (*to.problems, *refused)
