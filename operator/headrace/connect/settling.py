"""How a task gives up a lane and goes on: after a stall, with new secrets, after an error."""

from headrace.api import TopicPartition
from headrace.connect.context import FlowContext
from headrace.connect.releasing import DRAIN_TIMEOUT_S
from headrace.connect.restoring import DataLoss, Starts, check_source_range
from headrace.connect.task_progress import TaskProgress
from headrace.errors import HeadraceError
from headrace.kafka import Position
from headrace.movers import Lane, OffsetGone


def settle(
    context: FlowContext,
    progress: TaskProgress,
    lane: Lane,
    partitions: frozenset[TopicPartition],
    failure: HeadraceError | None,
) -> Starts:
    """Drop what is queued, wait for the outcome of what was sent, store it; where to go on.

    Another driver may own the partitions by now: progress then names it, and ``OwnershipLost`` is
    raised. Then the ``failure`` is raised, if there is one; an ``OffsetGone`` is explained by
    ``DataLoss``, or no failure when the offset is there after all. ``Retriable`` while brokers do
    not answer: a restore then goes on from what is ``progress.settled``. The lane is closed.
    """
    try:
        lane.settle(DRAIN_TIMEOUT_S)
    finally:
        progress.settled = settled = progress.acknowledged(lane)
        lane.close()
    context.progress.read_to_end()
    progress.check_owner(partitions)
    progress.write(settled)
    if isinstance(failure, OffsetGone):
        _explain(context, failure)
    elif failure is not None:
        raise failure
    return settled


def _explain(context: FlowContext, gone: OffsetGone) -> None:
    if gone.truncated:
        raise DataLoss(
            f"{gone}: the source lost records that were copied and holds others in their "
            "place (an unclean election)"
        ) from gone
    at, source = gone.at, context.source
    start = source.offsets([at], Position.EARLIEST)[at]
    end = source.offsets([at], Position.LATEST)[at]
    check_source_range(context, at, gone.offset, start, end)
