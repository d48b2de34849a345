"""How a task gives up a lane and goes on: after a stall, with new secrets, after an error."""

from headrace.api import TopicPartition
from headrace.connect.context import FlowContext
from headrace.connect.record_errors import RecordErrors
from headrace.connect.releasing import DRAIN_TIMEOUT_S
from headrace.connect.restoring import (
    DataLoss,
    Start,
    Starts,
    check_source_range,
    created_again_on_target,
    known_topic_ids,
    lost_on_target,
)
from headrace.connect.task_progress import TaskProgress
from headrace.errors import HeadraceError
from headrace.kafka import Position
from headrace.movers import Lane, OffsetGone, TargetLoss


def settle(
    context: FlowContext,
    progress: TaskProgress,
    record_errors: RecordErrors,
    lane: Lane,
    partitions: frozenset[TopicPartition],
    *,
    failure: HeadraceError | None,
) -> Starts:
    """Drop what is queued, wait for the outcome of what was sent, store it; where to go on.

    Another driver may own the partitions by now: progress then names it, and ``OwnershipLost`` is
    raised. Then the ``failure`` is raised, if there is one; an ``OffsetGone`` is explained by
    ``DataLoss``, or no failure when the offset is there after all. So is a ``TargetLoss``, which is
    stored: what is appended later hides it. ``Retriable`` while brokers do not answer: a restore
    then goes on from what is ``progress.settled``. Records that were refused are answered when all
    before them is stored. The lane is closed.
    """
    try:
        lane.settle(DRAIN_TIMEOUT_S)
    finally:
        progress.keep(lane)
        record_errors.keep(lane)
        lane.close()
    store_settled(context, progress, partitions)
    record_errors.answer(progress)
    if isinstance(failure, OffsetGone):
        _explain_on_source(context, failure)
    elif failure is not None:
        raise failure
    return progress.settled


def store_settled(
    context: FlowContext, progress: TaskProgress, partitions: frozenset[TopicPartition]
) -> Starts:
    """The part of ``settle`` that may be repeated."""
    context.progress.read_to_end()
    progress.check_owner(partitions)
    settled = progress.settled
    losses = {
        at: _explain_on_target(context, loss, settled[at])
        for at, loss in progress.target_losses.items()
    }
    progress.write(settled, {at: str(loss) for at, loss in losses.items()})
    for loss in losses.values():
        raise loss
    return settled


def _explain_on_target(context: FlowContext, loss: TargetLoss, settled: Start) -> DataLoss:
    _, target_id = known_topic_ids(context, {loss.at.topic})[loss.at.topic]
    if target_id != settled.target_topic_id:
        return created_again_on_target(context, loss.at, settled.source_offset)
    return lost_on_target(context, loss.at, loss.offset, loss.expected)


def _explain_on_source(context: FlowContext, gone: OffsetGone) -> None:
    if gone.truncated:
        raise DataLoss(
            f"{gone}: the source lost records that were copied and holds others in their "
            "place (an unclean election)"
        ) from gone
    at, source = gone.at, context.source
    start = source.offsets([at], Position.EARLIEST)[at]
    end = source.offsets([at], Position.LATEST)[at]
    check_source_range(context, at, gone.offset, start, end)
