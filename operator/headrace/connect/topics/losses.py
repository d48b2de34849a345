"""Lost records: detection, and reports of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.api import (
    Condition,
    ConditionType,
    LossAction,
    LossCause,
    LostOffsets,
    OnDataLoss,
    Reason,
    TopicPartition,
)
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.contested_partitions import observation
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal
from headrace.kafka import replaced
from headrace.replication import Confirmed, Loss, Progress


class DataLoss(Fatal):
    """Records were lost before they were copied, or copies were lost.

    The message names the offsets.
    """


class PartitionState(NamedTuple):
    """State of one partition on both clusters."""

    source_topic_id: str
    target_topic_id: str
    start: int
    """First offset on the source."""
    end: int
    """End of the source's log."""
    target_end: int
    target_epoch_end: int | None = None
    """End of the leader epoch of ``Progress.target_seen`` in the log of the target's leader; None
    if unknown."""


def restart_as_new_topic(progress: Progress, found: PartitionState) -> Progress:
    """Return the progress for a new topic that has the name of a deleted one.

    If the deletion was accepted, the new topic is copied from its beginning. Otherwise progress is
    returned unchanged.
    """
    loss = progress.loss
    if loss is None or loss.cause is not LossCause.SOURCE_DELETED or loss.unresolved:
        return progress
    return replace(
        progress,
        source_topic_id=found.source_topic_id,
        source_offset=found.start,
        source_end=found.end,
        leader_epoch=-1,
        confirmed=None,
        loss=replace(loss, cause=LossCause.SOURCE_RECREATED),
        pairs=(),
    )


def restart_at_log_start(progress: Progress, found: PartitionState) -> Progress:
    """Return progress at the start of the source's log if retention overtook the first copy.

    Nothing was copied yet, so nothing counts as lost: the partition begins at the first existing
    offset, as it would if its first claim was now. Otherwise progress is returned unchanged.
    """
    if (
        progress.has_begun
        or progress.loss is not None
        or replaced(progress.source_topic_id, found.source_topic_id)
        or not progress.source_offset < found.start <= found.end
    ):
        return progress
    return replace(progress, source_offset=found.start, first_offset=found.start, confirmed=None)


def find_loss(progress: Progress, found: PartitionState, now_ms: int) -> Loss | None:
    """Return the loss that prevents resuming at this progress, or None.

    A resolved loss is not returned.
    """
    if progress.loss is not None and progress.loss.unresolved:
        return _extend_loss(progress.loss, progress, found)
    return _recreated(progress, found, now_ms) or _truncated_log(progress, found, now_ms)


def _recreated(progress: Progress, found: PartitionState, now_ms: int) -> Loss | None:
    if replaced(progress.source_topic_id, found.source_topic_id):
        return recreated_on_source(progress.known_good, now_ms)
    if replaced(progress.target_topic_id, found.target_topic_id):
        return recreated_on_target(progress.known_good.target_offset, now_ms)
    return None


def _truncated_log(progress: Progress, found: PartitionState, now_ms: int) -> Loss | None:
    position, target_offset = progress.source_offset, progress.target_offset
    if position < found.start:
        return Loss(LossCause.SOURCE_TRUNCATED, position, found.start - 1, now_ms)
    if position > found.end:
        return Loss(LossCause.SOURCE_DIVERGED, found.end, position - 1, now_ms)
    if (end := _target_truncated_at(progress, found)) is not None:
        return Loss(LossCause.TARGET_TRUNCATED, end, target_offset - 1, now_ms)
    return None


def _target_truncated_at(progress: Progress, found: PartitionState) -> int | None:
    """Return the target offset from which copies were lost, or None.

    Markers and other writers may have extended the log again, so the leader epoch is decisive.
    """
    seen, end = progress.target_seen, found.target_epoch_end
    if seen is not None and end is not None and end < seen.offset:
        return end
    return found.target_end if found.target_end < progress.target_offset else None


def _extend_loss(loss: Loss, progress: Progress, found: PartitionState) -> Loss:
    """Return the loss with its current extent.

    Retention may have deleted more records, or the topic may have been created again.
    """
    if loss.cause is LossCause.SOURCE_DELETED:  # the topic exists again
        return replace(loss, cause=LossCause.SOURCE_RECREATED)
    if loss.cause is LossCause.TARGET_TRUNCATED:
        if replaced(progress.target_topic_id, found.target_topic_id):
            return recreated_on_target(loss.last + 1, loss.time_ms)
    elif loss.cause in (LossCause.SOURCE_TRUNCATED, LossCause.SOURCE_DIVERGED):
        if replaced(progress.source_topic_id, found.source_topic_id):
            return recreated_on_source(progress.known_good, loss.time_ms)
        if loss.cause is LossCause.SOURCE_TRUNCATED:
            return replace(loss, last=max(loss.last, found.start - 1))
    return loss


def recreated_on_source(known_good: Confirmed, now_ms: int) -> Loss:
    """Return the loss for a source topic that was created again.

    ``known_good`` is the last state that belongs to the old topic with certainty.
    """
    first = known_good.source_offset
    last = max(known_good.source_end, first) - 1
    return Loss(LossCause.SOURCE_RECREATED, first, last, now_ms, lower_bound=True)


def deleted_on_source(
    progress: Progress, end: int, now_ms: int, *, unseen: bool = False
) -> Loss | None:
    """Return the loss of a deleted log, or None if all of it was copied and nothing else was lost.

    ``end`` is the last known end of the log. ``unseen`` states that records may have been written
    after it.
    """
    first = progress.source_offset
    if first < end or unseen:
        last = max(first, end) - 1
        return Loss(LossCause.SOURCE_DELETED, first, last, now_ms, lower_bound=True)
    return progress.loss if progress.loss is not None and progress.loss.unresolved else None


def recreated_on_target(target_offset: int, now_ms: int) -> Loss:
    """Return the loss for a target topic that was created again.

    ``target_offset`` is the last end that belongs to the old topic with certainty.
    """
    return Loss(LossCause.TARGET_RECREATED, 0, target_offset - 1, now_ms)


def resolve(progress: Progress, loss: Loss, found: PartitionState, policy: OnDataLoss) -> Progress:
    """Return the progress with which the copy resumes, according to ``spec.onDataLoss``.

    Fail keeps the offset, and the partition stops. Restart copies all existing records again, from
    the earliest offset. Continue resumes after the lost records: at the start of a log that was
    truncated or created again, at the offset from which the source differs from the copy, or at the
    next record if the target has lost copies.
    """
    if policy is OnDataLoss.FAIL:
        return progress.with_loss(replace(loss, action=LossAction.STOPPED))
    if policy is OnDataLoss.RESTART or loss.cause is LossCause.SOURCE_RECREATED:
        position = found.start
    elif loss.is_on_target:
        position = progress.source_offset
    else:
        position = max(loss.first, found.start)
    restarted = policy is OnDataLoss.RESTART
    action = LossAction.RESTARTED if restarted else LossAction.CONTINUED
    same = position == progress.source_offset
    resolved = replace(
        progress.with_loss(replace(loss, action=action)),
        source_offset=position,
        leader_epoch=progress.leader_epoch if same else -1,
    )
    if loss.is_on_target:
        return replace(
            resolved,
            target_topic_id=found.target_topic_id,
            target_offset=found.target_end,
            target_seen=None,
            pairs=(),
        )
    return replace(resolved, source_topic_id=found.source_topic_id, source_end=found.end, pairs=())


_SHOWN_S = 86_400
"""Time in seconds for which a resolved loss is reported, so that a user sees it the next
morning."""
_MAX_LOSSES = 100


class Shown(NamedTuple):
    """Losses that a unit reports."""

    listed: tuple[LostOffsets, ...]
    conditions: tuple[Condition, ...]


def is_shown(loss: Loss, now_s: float) -> bool:
    """Return whether a loss is reported at ``now_s`` (Unix time)."""
    return loss.unresolved or loss.time_ms > (now_s - _SHOWN_S) * 1000


def shown_losses(
    losses: Mapping[TopicPartition, Loss],
    now_s: float,
    sentence: Callable[[TopicPartition, Loss], str],
) -> Shown:
    """Return the losses that are reported at ``now_s`` (Unix time)."""
    shown = {at: loss for at, loss in sorted(losses.items()) if is_shown(loss, now_s)}
    if not shown:
        return Shown((), ())
    listed = [lost_offsets(at, loss) for at, loss in shown.items()]
    message = "; ".join(sentence(at, loss) for at, loss in shown.items())
    lost = observation(ConditionType.DATA_LOSS_DETECTED, Reason.DATA_LOST, message)
    return Shown(tuple(listed[:_MAX_LOSSES]), (lost,))


def lost_offsets(at: TopicPartition, loss: Loss) -> LostOffsets:
    """Return a loss in the form of the status."""
    return LostOffsets(
        topic=at.topic,
        partition=at.partition,
        cause=loss.cause,
        first_offset=loss.first,
        last_offset=loss.last if loss.last >= loss.first else None,
        lower_bound=loss.lower_bound,
        action=loss.action,
        time=datetime.fromtimestamp(loss.time_ms // 1000, UTC),
    )


def sentence(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    """Return a sentence about the loss, its cause, and what was done or can be done."""
    outcomes = _OF_DELETED if loss.cause is LossCause.SOURCE_DELETED else _OUTCOMES
    outcome = outcomes[loss.action]
    if context.preserved and loss.cause is not LossCause.SOURCE_DELETED:
        there = context.policy.target_topic(at.topic)
        outcome = _OF_PRESERVED[loss.action].format(there=there, target=context.target.name)
    return f"{_WORDS[loss.cause](context, at, loss)}; {outcome}"


_OUTCOMES = {
    LossAction.STOPPED: (
        "the partition is stopped: set spec.onDataLoss to Restart (copy it again from the earliest "
        "offset) or Continue (resume after the loss), reset the partition (`headrace flow reset`), "
        "or exclude the topic"
    ),
    LossAction.RESTARTED: "copied again from the earliest offset (spec.onDataLoss: Restart)",
    LossAction.CONTINUED: "resumed after the loss (spec.onDataLoss: Continue)",
}


_OF_PRESERVED = {
    LossAction.STOPPED: (
        "the partition is stopped, because its copy could not keep the source's offsets "
        "(spec.offsets.mode: Preserved): have {there} on {target} copied again, by `headrace flow "
        "rebuild`, or exclude the topic"
    ),
    LossAction.RESTARTED: "copied again from there on (spec.offsets.mode: Preserved)",
    LossAction.CONTINUED: "resumed after the loss",
}


_OF_DELETED = {
    LossAction.STOPPED: (
        "to accept that, set spec.onDataLoss to Continue or Restart, or exclude the topic"
    ),
    LossAction.RESTARTED: "accepted (spec.onDataLoss: Restart)",
    LossAction.CONTINUED: "accepted (spec.onDataLoss: Continue)",
}


def _truncated(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    return (
        f"{at} on {context.source.name} begins at offset {loss.last + 1}, the next to copy was "
        f"{loss.first}: offsets {loss.first} to {loss.last} are lost (possible "
        "causes: retention, or a request that deleted records, before they were copied)"
    )


def _diverged(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    return (
        f"{at} on {context.source.name} ended at offset {loss.first}, but offsets up to "
        f"{loss.last} were copied: the source does not have them, and may write others in "
        "their place (possible causes: an unclean election, or a disk that was lost or restored)"
    )


def _recreated_on_source(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    seen = f" (at least to offset {loss.last})" if loss.last >= loss.first else ""
    return (
        f"topic {at.topic} on {context.source.name} has another topic id than the topic that was "
        f"copied: records of the old partition {at.partition} from offset {loss.first} on{seen} "
        "are lost, unless they were copied before this was noticed (possible causes: the topic was "
        "deleted and created again, or the cluster was set up again)"
    )


def _deleted_on_source(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    topic = f"topic {at.topic} on {context.source.name} was deleted"
    if loss.last < loss.first:
        return (
            f"{topic}: records of its partition {at.partition} from offset {loss.first} on were "
            "not copied, and are lost"
        )
    return (
        f"{topic}: offsets {loss.first} to (at least) {loss.last} of its partition {at.partition} "
        "were not copied, and are lost"
    )


def _truncated_on_target(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    target = target_partition(context, at)
    return (
        f"{target} on {context.target.name} continued at offset {loss.first}, but all "
        f"offsets below {loss.last + 1} were acknowledged: offsets {loss.first} to {loss.last} are "
        "missing from the target (possible causes: an unclean election, a request that deleted "
        "records, or a disk that was lost or restored)"
    )


def _recreated_on_target(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    offsets = f"its offsets 0 to {loss.last}, " if loss.last >= 0 else ""
    return (
        f"topic {context.policy.target_topic(at.topic)} on {context.target.name} has another topic "
        f"id than the topic that was written: {offsets}all copies of {at} until then, are lost "
        "(possible causes: the topic was deleted and created again, or the cluster was set up "
        "again)"
    )


_WORDS: dict[LossCause, Callable[[FlowContext, TopicPartition, Loss], str]] = {
    LossCause.SOURCE_TRUNCATED: _truncated,
    LossCause.SOURCE_DIVERGED: _diverged,
    LossCause.SOURCE_RECREATED: _recreated_on_source,
    LossCause.SOURCE_DELETED: _deleted_on_source,
    LossCause.TARGET_TRUNCATED: _truncated_on_target,
    LossCause.TARGET_RECREATED: _recreated_on_target,
}
