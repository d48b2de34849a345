"""Where a partition begins that has no progress, or whose progress is not to count."""

from collections.abc import Set

from headrace.api import StartFrom, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.kafka import Position


def first_positions(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where partitions without progress begin.

    ``Latest`` means: records since the flow was made, by their timestamps. A topic that is made
    later is copied from its beginning, unless it has records with older timestamps: whether those
    came after the flow cannot be known, as Kafka keeps no time of a topic's creation.
    """
    source, spec = context.source, context.spec
    if not partitions:
        return {}
    if spec.start_from is StartFrom.EARLIEST:
        return source.offsets(partitions, Position.EARLIEST)
    # Ends first: a record that comes between the two requests is then found, or is above the end.
    ends = source.offsets(partitions, Position.LATEST)
    moment = spec.start_timestamp or context.flow.metadata.creation_timestamp
    found = source.offsets_at(partitions, int(moment.timestamp() * 1000)) if moment else {}
    return {at: ends[at] if found.get(at, -1) < 0 else found[at] for at in partitions}
