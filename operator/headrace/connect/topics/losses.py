"""Loss of records: what is found in stored progress, and where a copy goes on."""

from dataclasses import replace
from typing import NamedTuple

from headrace.api import (
    LossAction,
    LossCause,
    OnDataLoss,
)
from headrace.errors import Fatal
from headrace.kafka import replaced
from headrace.replication import Confirmed, Loss, Progress

_ON_TARGET = (LossCause.TARGET_TRUNCATED, LossCause.TARGET_RECREATED)


class DataLoss(Fatal):
    """Records are gone that were not copied, or copies are gone; the message says which."""


class Found(NamedTuple):
    """What both clusters hold of one partition."""

    source_topic_id: str
    target_topic_id: str
    start: int
    """The first offset on the source."""
    end: int
    """Behind its last offset on the source."""
    target_end: int
    target_epoch_end: int | None = None
    """Where the log of the target's leader ends the epoch of ``Progress.target_seen``; None: not
    known."""


def goes_on_as_new(progress: Progress, found: Found) -> Progress:
    """What is stored of a topic that was deleted, when that loss was accepted: the topic that has
    its name now is copied from its beginning."""
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


def begins_later(progress: Progress, found: Found) -> Progress:
    """Return progress at the start of the source's log if retention overtook the first copy.

    Nothing was copied yet, so nothing is lost: the partition begins at the first offset that is
    there, as it would if it was claimed now.
    """
    if (
        progress.has_begun
        or progress.loss is not None
        or replaced(progress.source_topic_id, found.source_topic_id)
        or not progress.source_offset < found.start <= found.end
    ):
        return progress
    return replace(progress, source_offset=found.start, first_offset=found.start, confirmed=None)


def find_loss(progress: Progress, found: Found, now_ms: int) -> Loss | None:
    """The loss that makes going on from here impossible; one that was resolved is none."""
    if progress.loss is not None and progress.loss.unresolved:
        return _until_now(progress.loss, progress, found)
    return _recreated(progress, found, now_ms) or _truncated_log(progress, found, now_ms)


def _recreated(progress: Progress, found: Found, now_ms: int) -> Loss | None:
    if replaced(progress.source_topic_id, found.source_topic_id):
        return recreated_on_source(progress.known_good, now_ms)
    if replaced(progress.target_topic_id, found.target_topic_id):
        return recreated_on_target(progress.known_good.target_offset, now_ms)
    return None


def _truncated_log(progress: Progress, found: Found, now_ms: int) -> Loss | None:
    position, target_offset = progress.source_offset, progress.target_offset
    if position < found.start:
        return Loss(LossCause.SOURCE_TRUNCATED, position, found.start - 1, now_ms)
    if position > found.end:
        return Loss(LossCause.SOURCE_DIVERGED, found.end, position - 1, now_ms)
    if (end := _target_truncated_at(progress, found)) is not None:
        return Loss(LossCause.TARGET_TRUNCATED, end, target_offset - 1, now_ms)
    return None


def _target_truncated_at(progress: Progress, found: Found) -> int | None:
    """Markers and other writers may have made the log long again: the epoch decides."""
    seen, end = progress.target_seen, found.target_epoch_end
    if seen is not None and end is not None and end < seen.offset:
        return end
    return found.target_end if found.target_end < progress.target_offset else None


def _until_now(loss: Loss, progress: Progress, found: Found) -> Loss:
    """While the partition waited retention went on, or the topic was created again."""
    if loss.cause is LossCause.SOURCE_DELETED:  # and there it is again
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
    """``known_good``: the last that is known to be of the old topic."""
    first = known_good.source_offset
    last = max(known_good.source_end, first) - 1
    return Loss(LossCause.SOURCE_RECREATED, first, last, now_ms, lower_bound=True)


def deleted_on_source(
    progress: Progress, end: int, now_ms: int, *, unseen: bool = False
) -> Loss | None:
    """Return the loss of a deleted log, or None if all of it was copied and nothing else was lost.

    ``end`` is the end of the log as last seen. With ``unseen``, more may have been written since.
    """
    first = progress.source_offset
    if first < end or unseen:
        last = max(first, end) - 1
        return Loss(LossCause.SOURCE_DELETED, first, last, now_ms, lower_bound=True)
    return progress.loss if progress.loss is not None and progress.loss.unresolved else None


def recreated_on_target(target_offset: int, now_ms: int) -> Loss:
    """``target_offset``: the last that is known to be of the old topic."""
    return Loss(LossCause.TARGET_RECREATED, 0, target_offset - 1, now_ms)


def resolve(progress: Progress, loss: Loss, found: Found, policy: OnDataLoss) -> Progress:
    """Where the copy goes on, by ``spec.onDataLoss``; with Fail it stays where it is.

    Restart copies all there is again, from the earliest offset. Continue goes on behind what is
    lost: at the start of a log that was truncated or created again, at the offset from which the
    source differs from what was copied, or, when it is the target that lost copies, with the next
    record.
    """
    if policy is OnDataLoss.FAIL:
        return progress.with_loss(replace(loss, action=LossAction.STOPPED))
    on_target = loss.cause in _ON_TARGET
    if policy is OnDataLoss.RESTART or loss.cause is LossCause.SOURCE_RECREATED:
        position = found.start
    elif on_target:
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
    if on_target:
        return replace(
            resolved,
            target_topic_id=found.target_topic_id,
            target_offset=found.target_end,
            target_seen=None,
            pairs=(),
        )
    return replace(resolved, source_topic_id=found.source_topic_id, source_end=found.end, pairs=())
