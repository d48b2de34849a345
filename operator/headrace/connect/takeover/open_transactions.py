"""What earlier owners stored in transactions, before a take-over or a fail-over: it must be final,
and read."""

from collections.abc import Set

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.fenced import earlier_writers


def end_open_transactions(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    """Of all that may write these: what they committed is in progress afterwards, the rest never.

    Behind the claim of the unit, and before the claim in progress, behind which what an earlier
    owner commits does not count. Without it the tail would tell, unless the source was compacted
    since. Raises ``Retriable``.
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
