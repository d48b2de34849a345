"""Records that MirrorMaker 2 copied after it had stored its last offset."""

from collections.abc import Callable, Mapping

from headrace.api import TopicPartition
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.datapath import ReadRecord
from headrace.kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, assign, unassign

_IDLE_TIMEOUT_S = 10.0
_BATCH = 1_000
_MAX_COMPARED = 100
"""Maximum number of source records that are compared with the last record of a copy. The first of
them has the copy's timestamp, so it is usually the record that was copied."""


def already_copied(
    context: FlowContext, left: Mapping[TopicPartition, range]
) -> dict[TopicPartition, int | None]:
    """Return how many offsets of each range of the source are already on the target.

    The last record of the copy is found on the source by its timestamp. A number is None if a
    partition cannot be read, if the copy ends with a marker, or if the copy's timestamps differ
    from the source's.

    Raises:
        HeadraceError: A cluster could not be read.
    """
    copies = {target_partition(context, at): at for at, offsets in left.items() if offsets}
    ends = {at: end for at, end in context.target.known_ends(copies).items() if end > 0}
    last: dict[TopicPartition, ReadRecord] = {}

    def take_last(copy: TopicPartition, message: ReadRecord) -> bool:
        last[copies[copy]] = message
        return True

    _read(context, {at: end - 1 for at, end in ends.items()}, take_last, of_source=False)
    found: dict[TopicPartition, int | None] = dict.fromkeys(left, 0)
    found |= dict.fromkeys((copies[copy] for copy in ends), None)
    starts: dict[TopicPartition, int] = {}
    for at, message in last.items():
        kind, time_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            continue
        found[at] = 0
        first = context.source.offsets_at([at], time_ms)[at]
        if first >= 0 and max(first, left[at].start) < left[at].stop:
            starts[at] = max(first, left[at].start)

    def compare(at: TopicPartition, message: ReadRecord) -> bool:
        offset = message.offset()
        if _content(message) == _content(last[at]):
            found[at] = offset + 1 - left[at].start
            return True
        return offset - starts[at] >= _MAX_COMPARED

    unread = _read(context, starts, compare, of_source=True)
    return found | dict.fromkeys(unread, None)


def _content(message: ReadRecord) -> tuple[object, ...]:
    return message.key(), message.value(), message.headers(), message.timestamp()[1]


def _read(
    context: FlowContext,
    starts: Mapping[TopicPartition, int],
    is_last: Callable[[TopicPartition, ReadRecord], bool],
    *,
    of_source: bool,
) -> set[TopicPartition]:
    """Read partitions from these offsets to their ends, or until ``is_last`` returns True.

    Return the partitions that could not be read.
    """
    unread = set[TopicPartition]()
    if not starts:
        return unread
    access = context.source_access if of_source else context.target_access
    consumer = context.clients.consumer(access)
    try:
        assign(consumer, starts.items())
        left, received_s = set(starts), context.clock.monotonic()
        while left:
            messages = consumer.consume(_BATCH, 0.2)
            for message in messages:
                at = TopicPartition(message.topic(), message.partition())
                if at not in left:
                    continue
                error = message.error()
                if error is not None or is_last(at, message):
                    left.discard(at)
                    unassign(consumer, [at])
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    unread.add(at)
            if messages:
                received_s = context.clock.monotonic()
            elif context.clock.monotonic() - received_s > _IDLE_TIMEOUT_S:
                return unread | left
    finally:
        consumer.close()
    return unread
