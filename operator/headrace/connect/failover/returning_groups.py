"""Groups that come back to the old source after a fail-over, where copies have names of their own.

Each has read on in a copy: within what was copied, or behind it. On the source it goes on at the
same record, by the pairs of offsets backwards; behind the copy at the end of what was copied.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.checkpoint.checkpoint_positions import GroupPartition
from headrace.connect.checkpoint.synced_offset_log import SyncedOffsetLog
from headrace.connect.failover.fail_over import Survey
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.kafka import Committed, GroupActive
from headrace.replication import Applied, Checkpoint, CopiedTo, StoredCheckpoint, judge


@dataclass
class Returned:
    """The outcome; offsets are of the old source."""

    moved: dict[GroupPartition, int] = field(default_factory=dict)
    kept: dict[GroupPartition, Applied] = field(default_factory=dict)
    """Those that are left alone, and why."""
    unknown: set[GroupPartition] = field(default_factory=set)
    """No pair of offsets is as old: they stay where they were on the source."""
    problems: tuple[HeadraceError, ...] = ()
    """Why some could not be read, or set."""


def return_groups(there: FlowContext, found: Survey, *, dry_run: bool) -> Returned:
    """``there`` is failed over. Only groups that nobody on the source has committed for since are
    set, without members there, and none is moved back. Raises as reading both clusters does."""
    checkpoints, syncs = CheckpointLog(there), SyncedOffsetLog(there)
    try:
        checkpoints.prepare()
        syncs.read()
        return _return(there, found, checkpoints, syncs, dry_run=dry_run)
    finally:
        checkpoints.close()
        syncs.close()


def _return(
    there: FlowContext,
    found: Survey,
    checkpoints: CheckpointLog,
    syncs: SyncedOffsetLog,
    *,
    dry_run: bool,
) -> Returned:
    written = checkpoints.of_flow()
    held_there, unread_there = _committed(there, found, {group for group, _ in written})
    held, unread = there.source.committed({group for group, _ in held_there})
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
        _set(there, wanted, returned)
        # So that the flow knows both offsets again, and a later command the one of the source.
        checkpoints.write(
            StoredCheckpoint(
                Checkpoint(
                    group,
                    *target_partition(there, at),
                    back,
                    held_there[GroupPartition(group, at)].offset,
                )
            )
            for (group, at), back in returned.moved.items()
        )
    return returned


def _committed(
    there: FlowContext, found: Survey, groups: Iterable[str]
) -> tuple[dict[GroupPartition, Committed], Mapping[str, HeadraceError]]:
    """On the target, for copies; by partition of the source."""
    source = {target_partition(there, at): at for at in found.partitions}
    names = {group for group in there.target.groups() if there.groups.matches(group)}
    committed, unread = there.target.committed(names | set(groups))
    return {
        GroupPartition(group, source[copy]): one
        for group, offsets in committed.items()
        for copy, one in offsets.items()
        if copy in source
    }, unread


def _copied_to(found: Survey, at: TopicPartition) -> CopiedTo | None:
    """Behind the switch is what the source never had."""
    one = found.partitions[at]
    if one.stored is None or one.switch is None:
        return None
    return CopiedTo(one.stored.source_offset, one.stored.target_offset)


def _ours(stored: StoredCheckpoint | None) -> frozenset[int]:
    """What the group had committed on the source when it was failed over."""
    return frozenset({stored.checkpoint.source_offset}) if stored else frozenset()


def _set(
    there: FlowContext, wanted: Mapping[str, Mapping[TopicPartition, Committed]], to: Returned
) -> None:
    failed = there.source.commit(wanted)
    for position in [one for one in to.moved if one.group in failed]:
        active = isinstance(failed[position.group], GroupActive)
        to.kept[position] = Applied.ACTIVE if active else Applied.REFUSED
        del to.moved[position]
    refused = (error for error in failed.values() if not isinstance(error, GroupActive))
    to.problems = (*to.problems, *refused)
