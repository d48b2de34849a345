"""Starts of copies with preserved offsets, which follow the starts of their sources."""

from collections.abc import Mapping

from headrace.api import TopicPartition
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.kafka import Position
from headrace.logs import get_logger

log = get_logger(__name__)


def follow_starts(context: FlowContext, acknowledged: Mapping[TopicPartition, int]) -> None:
    """Delete the records of copies that their sources have deleted.

    ``acknowledged`` has the offset up to which each partition of the source is copied. If the
    source starts after that offset, records were lost. The copy then stays as it is, because an
    empty copy would be filled up to the source's start without a report.

    Raise ``Retriable`` if a cluster does not respond. A refused deletion is only logged, because
    brokers refuse it for topics with ``cleanup.policy=compact`` alone.
    """
    starts = _beyond(context, acknowledged, acknowledged)
    if not starts:
        return
    # A broker of another cluster may have answered, or the answer was damaged. Therefore the starts
    # are read twice.
    context.check_brokers()
    again = _beyond(context, acknowledged, starts)
    wanted = {target_partition(context, at): min(start, starts[at]) for at, start in again.items()}
    if not wanted:
        return
    try:
        context.target.delete_records(wanted)
    except HeadraceError as error:
        log.warning("starts not followed", partitions=len(wanted), why=str(error))
    else:
        log.info("starts followed", partitions=len(wanted))


def _beyond(
    context: FlowContext,
    acknowledged: Mapping[TopicPartition, int],
    partitions: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the source's starts that are after the copy's start and not after its end."""
    starts = context.source.known_ends(partitions, Position.EARLIEST)
    late = {at: start for at, start in starts.items() if 0 < start <= acknowledged[at]}
    copies = {target_partition(context, at): at for at in late}
    found = context.target.known_ends(copies, Position.EARLIEST)
    return {copies[at]: late[copies[at]] for at, start in found.items() if start < late[copies[at]]}
