"""Checks of partitions with ``offsets.mode: Preserved`` before they are taken over."""

from collections.abc import Mapping
from dataclasses import replace

from headrace.api import LossAction, LossCause, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.takeover.starts import Starts
from headrace.connect.topics.losses import PartitionState
from headrace.errors import Fatal, HeadraceError
from headrace.kafka import TopicConfig, replaced
from headrace.movers import Before, Fencing
from headrace.replication import Loss, Progress, settings_of_other_offsets


def of_another_kind(
    context: FlowContext, stored: Mapping[TopicPartition, Progress]
) -> dict[TopicPartition, Fatal]:
    """Return the partitions whose copies have offsets of the other kind.

    They were copied by a flow with the other ``spec.offsets``. With Preserved a reset compares them
    from the start.
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
    """Return the progress of a copy with its source's offsets, given what exists.

    The target's end is decisive. A topic that was deleted on the target is copied again.
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
        # It is filled up to the source's first offset, which may be another one now.
        first = max(found.start, progress.source_offset)
        return replace(progress, source_offset=first, confirmed=None)
    return _truncated(progress, found, now_ms)


def _truncated(progress: Progress, found: PartitionState, now_ms: int) -> Progress:
    """Return the progress after an unclean election, so that the lost records are copied again.

    Everything after them was also lost.
    """
    seen, epoch_end = progress.target_seen, found.target_epoch_end
    end = found.target_end
    if seen is not None and epoch_end is not None and epoch_end < seen.offset:
        end = min(end, epoch_end)
    noticed = progress.loss
    if noticed and noticed.unresolved and noticed.cause is LossCause.TARGET_TRUNCATED:
        end = min(end, noticed.first)  # while a lane ran; its log may be longer again
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
    """Return the starts with the writer of each partition's data, which never changes."""
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
    """Return partitions whose topics allow equal offsets, and errors of the others."""
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
    """Empty: it fits."""
    found = settings_of_other_offsets(source.in_effect, copy.in_effect, begins_later=begins_later)
    return "; ".join(f"{one.setting}: {one.why}" for one in found)


def _compacts(config: TopicConfig | None) -> bool:
    return config is not None and "compact" in config.in_effect.get("cleanup.policy", "")
