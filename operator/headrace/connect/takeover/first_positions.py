"""The first offsets of partitions that have no progress, or whose progress was reset."""

from collections.abc import Set

from headrace.api import StartMode, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal
from headrace.kafka import Position


def first_positions(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition, by ``spec.startFrom``.

    ``Latest`` means: records since the flow was made, by their timestamps. A topic that is made
    later is copied from its beginning, unless it has records with older timestamps: whether those
    came after the flow cannot be known, as Kafka keeps no time of a topic's creation.

    Raises:
        Fatal: the source does not have an offset that ``spec.startFrom.offsets`` lists.
    """
    source, start = context.source, context.spec.start_from
    if not partitions:
        return {}
    if start.mode is StartMode.EARLIEST:
        return source.offsets(partitions, Position.EARLIEST)
    if start.mode is StartMode.OFFSETS:
        return _listed(context, partitions)
    # Ends first: a record that comes between the two requests is then found, or is above the end.
    ends = source.offsets(partitions, Position.LATEST)
    moment = start.timestamp or context.flow.metadata.creation_timestamp
    found = source.offsets_at(partitions, int(moment.timestamp() * 1000)) if moment else {}
    return {at: ends[at] if found.get(at, -1) < 0 else found[at] for at in partitions}


def _listed(context: FlowContext, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the listed offsets, and the earliest one of each partition that is not listed."""
    source = context.source
    earliest = source.offsets(partitions, Position.EARLIEST)
    listed = {one.at: one.offset for one in context.spec.start_from.offsets or ()}
    starts = {at: listed[at] for at in partitions & listed.keys()}
    latest = source.offsets(starts.keys(), Position.LATEST) if starts else {}
    for at, offset in sorted(starts.items()):
        if not earliest[at] <= offset <= latest[at]:
            raise Fatal(
                f"spec.startFrom.offsets lists offset {offset} of {at}, and {source.name} has "
                f"offsets {earliest[at]} to {latest[at]} there: list an offset in that range, or "
                "remove the entry to copy the partition from its earliest record"
            )
    return earliest | starts
