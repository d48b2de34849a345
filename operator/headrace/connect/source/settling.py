"""Settling of a lane that a task gives up, after a stall, with new secrets, or after an error."""

from collections.abc import Set

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.releasing import DRAIN_TIMEOUT_S
from headrace.connect.source.record_errors import RecordErrors
from headrace.connect.source.task_progress import TaskProgress
from headrace.connect.takeover.fenced import with_new_epoch
from headrace.connect.takeover.starts import Restored
from headrace.movers import Lane


def settle(
    context: FlowContext,
    progress: TaskProgress,
    record_errors: RecordErrors,
    lane: Lane,
    partitions: frozenset[TopicPartition],
    *,
    failed: Set[TopicPartition],
) -> Restored:
    """Drop queued records, wait for the outcome of sent ones, and store it; return where to resume.

    Partitions that ``failed`` or lost records are stored with what the lane found out, and left to
    a restore. If another driver owns the partitions by now, progress names it, and
    ``OwnershipLost`` is raised. ``Retriable`` is raised while brokers do not respond: a restore
    then continues from ``progress.settled``. Rejected records are handled when everything before
    them is stored. The lane is closed.
    """
    try:
        lane.settle(DRAIN_TIMEOUT_S)
        if lane.transactions is not None:
            progress.commit_settled(lane, DRAIN_TIMEOUT_S)
    finally:
        progress.keep(lane)
        record_errors.keep(lane)
        lane.close()
    store_settled(context, progress, partitions)
    record_errors.answer(progress)
    if lane.transactions is not None or context.preserved:
        # All are taken over again: what was not committed is to be aborted, by a marker that is
        # read in each partition. And where offsets are preserved, the target says where it ends.
        return Restored({}, {})
    settled = {
        at: start for at, start in progress.settled.items() if at not in failed and not start.waits
    }
    return Restored(with_new_epoch(context, progress.ownership, settled), {})


def store_settled(
    context: FlowContext, progress: TaskProgress, partitions: frozenset[TopicPartition]
) -> Restored:
    """Repeat the repeatable part of ``settle``.

    Nothing may be opened after it, because the epoch of what is settled was used by its lane.
    """
    context.progress.read_to_end()
    progress.check_owner(partitions)
    progress.write(progress.to_store)
    return Restored({}, {})
