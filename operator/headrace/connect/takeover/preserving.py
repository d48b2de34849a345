"""Copies with preserved offsets: checks before a takeover, and rebuilds."""

import time
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from headrace.api import LossAction, LossCause, TopicPartition, format_ranges
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.takeover.starts import Starts
from headrace.connect.topics.losses import PartitionState
from headrace.datapath import Before, Fencing
from headrace.errors import Fatal, GaveUp, HeadraceError, InvalidSpec
from headrace.kafka import Position, TopicConfig, replaced
from headrace.replication import Loss, Progress, settings_of_other_offsets


def of_another_kind(
    context: FlowContext, stored: Mapping[TopicPartition, Progress]
) -> dict[TopicPartition, Fatal]:
    """Return an error for each partition that a flow with the other ``spec.offsets.mode`` copied.

    In a flow with mode Preserved, a reset makes such a partition acceptable: it is compared from
    the start.
    """
    found = {}
    for at, progress in stored.items():
        if context.preserved == (progress.data_writer is not None):
            continue
        if context.preserved and context.resets.time_ms(at) > progress.reset_ms:
            continue
        kinds = ("Preserved", "Translated")
        there, here = kinds if progress.data_writer is not None else reversed(kinds)
        found[at] = Fatal(
            f"{at} was copied to {context.policy.target_topic(at.topic)} on "
            f"{context.target.name} by a flow with offsets.mode: {there}, and this one has {here}: "
            "copy it to another topic, by spec.replicationPolicy"
        )
    return found


def begun_again(progress: Progress, found: PartitionState, now_ms: int) -> Progress:
    """Return the progress of a copy with preserved offsets, adapted to the state of the clusters.

    The target's end determines where the copy resumes. A topic that was deleted on the target is
    copied again.
    """
    if replaced(progress.target_topic_id, found.target_topic_id):
        last = progress.known_good.target_offset - 1
        lost = Loss(LossCause.TARGET_RECREATED, 0, last, now_ms, action=LossAction.RESTARTED)
        return replace(
            progress.with_loss(lost),
            source_topic_id=found.source_topic_id,
            target_topic_id=found.target_topic_id,
            source_offset=found.start,
            target_offset=0,
            leader_epoch=-1,
            confirmed=None,
            target_seen=None,
            source_end=found.end,
            tombstones_since_ms=0,
            pairs=(),
        )
    if progress.target_offset < progress.source_offset:
        # The copy is filled up to the source's first offset, which may be higher now.
        first = max(found.start, progress.source_offset)
        return replace(progress, source_offset=first, confirmed=None)
    return _truncated(progress, found, now_ms)


def _truncated(progress: Progress, found: PartitionState, now_ms: int) -> Progress:
    """Return progress in which the target's lost records are copied again.

    An unclean election loses all records from an offset on.
    """
    seen, epoch_end = progress.target_seen, found.target_epoch_end
    end = found.target_end
    if seen is not None and epoch_end is not None and epoch_end < seen.offset:
        end = min(end, epoch_end)
    noticed = progress.loss
    if noticed and noticed.unresolved and noticed.cause is LossCause.TARGET_TRUNCATED:
        end = min(end, noticed.first)  # the log may have grown since a lane noticed the loss
    if end >= progress.target_offset:
        return progress
    lost = Loss(
        LossCause.TARGET_TRUNCATED,
        end,
        progress.target_offset - 1,
        now_ms,
        action=LossAction.RESTARTED,
    )
    return replace(
        progress.with_loss(lost),
        source_offset=end,
        target_offset=end,
        leader_epoch=-1,
        confirmed=None,
        target_seen=None,
        pairs=(),
    )


def with_data_writers(
    context: FlowContext,
    ownership: Ownership,
    fencing: Fencing,
    starts: Starts,
    stored: Mapping[TopicPartition, Progress],
) -> Starts:
    """Return the starts with the producer that writes each partition's data and never changes."""
    if not context.preserved:
        return starts
    known = {
        at: progress.data_writer
        for at, progress in stored.items()
        if progress.data_writer is not None
    }
    fresh = None if starts.keys() <= known.keys() else fencing.data_writer(ownership.name)
    return {at: start._replace(data_writer=known.get(at, fresh)) for at, start in starts.items()}


def fitting(
    context: FlowContext, partitions: Mapping[TopicPartition, Before]
) -> tuple[dict[TopicPartition, Before], dict[TopicPartition, HeadraceError]]:
    """Return partitions whose topic settings allow equal offsets, and errors of the others."""
    if not context.preserved or not partitions:
        return dict(partitions), {}
    topics = {at.topic for at in partitions}
    there = {topic: context.policy.target_topic(topic) for topic in topics}
    source, refused = context.source.topic_configs(topics)
    target, refused_there = context.target.topic_configs(there.values())
    fit: dict[TopicPartition, Before] = {}
    unfit: dict[TopicPartition, HeadraceError] = {}
    for at, before in partitions.items():
        name = there[at.topic]
        unread = refused.get(at.topic) or refused_there.get(name)
        if unread is not None:
            unfit[at] = unread
            continue
        ours, copy = source.get(at.topic), target.get(name)
        begins_later = before.target_offset < before.source_offset
        if ours and copy and (why := _unfit(ours, copy, begins_later=begins_later)):
            unfit[at] = Fatal(
                f"{name} on {context.target.name} cannot have the offsets of {at.topic} on "
                f"{context.source.name}: {why}; set it so, then restart the task, or wait"
            )
            continue
        fit[at] = before._replace(source_compacts=_compacts(ours), target_compacts=_compacts(copy))
    return fit, unfit


def _unfit(source: TopicConfig, copy: TopicConfig, *, begins_later: bool) -> str:
    """Return why settings do not allow equal offsets; empty if they do."""
    found = settings_of_other_offsets(source.in_effect, copy.in_effect, begins_later=begins_later)
    return "; ".join(f"{one.setting}: {one.why}" for one in found)


def _compacts(config: TopicConfig | None) -> bool:
    return config is not None and "compact" in config.in_effect.get("cleanup.policy", "")


# Rebuild: deletion of a copy that cannot continue with its source's offsets (``headrace flow
# rebuild``). The owner of the partition creates the copy again. A log cannot be truncated by a
# client, so the whole topic is deleted. A single partition can be rebuilt only if its source now
# begins after the end of the copy, because of retention. Then its records are deleted, and its
# owner fills it up to the source's first offset.

_GONE_TIMEOUT_S = 30.0
_POLL_S = 0.2


class Copy(NamedTuple):
    """Start and end offsets of one partition on both clusters."""

    source_start: int
    source_end: int
    """Source offset after the last committed record."""
    start: int
    end: int

    @property
    def overtaken(self) -> bool:
        """Whether the source has deleted all records of the copy, and the next record to copy."""
        return self.end <= self.source_start

    @property
    def only_there(self) -> int:
        """Number of offsets of the copy that are not on the source and cannot be copied again.

        They were deleted on the source, or are after its end.
        """
        before = max(0, min(self.source_start, self.end) - self.start)
        return before + max(0, self.end - max(self.source_end, self.start))


class Rebuild(NamedTuple):
    """Effect of a rebuild on one topic of the target."""

    topic: str
    """Name of the topic."""
    copies: Mapping[TopicPartition, Copy]
    """Copies by source partition."""
    topic_id: str
    """Id of the topic that is deleted; empty if only records of these partitions are deleted."""


def plan_rebuild(context: FlowContext, partitions: Set[TopicPartition]) -> Rebuild:
    """Plan a rebuild for ``partitions`` of one topic of the source.

    Raises:
        InvalidSpec: The rebuild is impossible.
        Retriable: Brokers do not respond.
    """
    if not context.preserved:
        raise InvalidSpec(
            f"flow {context.name} has offsets.mode: Translated, where no copy has to be rebuilt: "
            f"`headrace flow reset {context.name}` copies partitions again"
        )
    (name,) = {at.topic for at in partitions}
    topic = context.policy.target_topic(name)
    source = context.source.describe([name]).get(name)
    copy = context.target.describe([topic]).get(topic)
    if source is None:
        raise InvalidSpec(
            f"{context.source.name} has no topic {name} any more: {topic} could not be copied again"
        )
    if copy is None:
        raise InvalidSpec(
            f"{context.target.name} has no topic {topic}: the flow creates it, and copies all of it"
        )
    _check_not_failed_over(context, partitions)
    theirs = {at: target_partition(context, at) for at in partitions}
    starts = context.source.offsets(partitions, Position.EARLIEST)
    ends = context.source.offsets(partitions, Position.LAST_STABLE)
    copy_starts = context.target.offsets(theirs.values(), Position.EARLIEST)
    copy_ends = context.target.offsets(theirs.values(), Position.LATEST)
    copies = {
        at: Copy(starts[at], ends[at], copy_starts[theirs[at]], copy_ends[theirs[at]])
        for at in sorted(partitions)
    }
    if {at.partition for at in partitions} >= set(range(source.partitions)):
        return Rebuild(topic, copies, copy.topic_id)
    left = {at.partition for at, one in copies.items() if not one.overtaken}
    if left:
        raise InvalidSpec(
            f"{topic}/{format_ranges(left)} cannot be rebuilt without the other partitions: a log "
            "cannot be made shorter, and the source still has what would come before its end; "
            f"`headrace flow rebuild {context.name} {name}` rebuilds all {source.partitions} "
            "partitions of the topic"
        )
    return Rebuild(topic, copies, "")


def _check_not_failed_over(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    progress = context.progress
    if not progress.exists():
        return  # following it would create the topic
    progress.start()
    progress.read_to_end()
    for at in sorted(partitions):
        stored = context.stored(at)
        if stored is not None and stored.switch is not None:
            raise InvalidSpec(
                f"{at} was failed over to {context.target.name}: applications may have written to "
                f"its copy since then, which would be lost; `headrace failover {context.name} "
                "--abort` gives that up"
            )


def copy_ends(context: FlowContext, plan: Rebuild) -> dict[TopicPartition, int]:
    """Return the ends of the copies, which do not change while nothing is written."""
    theirs = [target_partition(context, at) for at in plan.copies]
    return context.target.offsets(theirs, Position.LATEST)


def delete_copies(context: FlowContext, plan: Rebuild) -> None:
    """Delete the copies, and wait until they no longer exist. Stop their copying before this call.

    Raises:
        GaveUp: The topic still exists after ``_GONE_TIMEOUT_S``.
    """
    target = context.target
    if not plan.topic_id:
        target.delete_records(copy_ends(context, plan))
        return
    target.delete_topic(plan.topic)
    deadline_s = time.monotonic() + _GONE_TIMEOUT_S
    while True:
        there = target.describe([plan.topic]).get(plan.topic)
        if there is None or there.topic_id != plan.topic_id:
            return
        if time.monotonic() > deadline_s:
            raise GaveUp(
                f"{plan.topic} is still on {target.name} after {_GONE_TIMEOUT_S:.0f} s: "
                "delete.topic.enable may be false there; nothing is copied again yet"
            )
        time.sleep(_POLL_S)
