"""Earlier owners' progress in transactions, which must be final and read before a takeover."""

from collections.abc import Set

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.fenced import earlier_writers


def end_open_transactions(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    """End the transactions of all owners that may write these partitions.

    Afterwards their committed progress is read, and other progress never counts. This happens after
    the claim of the unit and before the claim in progress: what an earlier owner commits after that
    does not count. Without it the tail would be needed, which does not help if the source was
    compacted since. Raise ``Retriable``.
    """
    stored = {at: context.stored(at) for at in partitions}
    if not context.exactly_once:
        stored = {at: known for at, known in stored.items() if known and known.in_transaction}
    names = {
        writer.transactional_id
        for at, known in stored.items()
        for writer in earlier_writers(context, at, known)
    }
    if names and (fencing := context.mover.fencing) is not None:
        fencing.end_transactions(names)
        context.progress.read_to_end()
