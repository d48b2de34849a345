"""The positions of groups, and how far their partitions are copied."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal
from headrace.replication import CopiedTo


class GroupPartition(NamedTuple):
    """A group's partition of the source."""

    group: str
    at: TopicPartition


def copied_to(
    context: FlowContext, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, CopiedTo | None]:
    """By the flow's progress, read to its end; raises as following it does."""
    context.progress.start()
    context.progress.read_to_end()
    return {at: _stored(context, at) for at in partitions}


def _stored(context: FlowContext, at: TopicPartition) -> CopiedTo | None:
    try:
        stored = context.stored(at)
    except Fatal:  # the source task that cannot read it says so
        return None
    return None if stored is None else CopiedTo(stored.source_offset, stored.target_offset)
