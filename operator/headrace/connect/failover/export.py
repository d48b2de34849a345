"""Export of a flow's progress to MirrorMaker 2."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.failover.mirror_maker import MirrorMaker, stored_progress
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.internal_topics import TopicTail
from headrace.errors import InvalidSpec
from headrace.replication import Progress


class Export(NamedTuple):
    """Plan of an export."""

    positions: Mapping[TopicPartition, int]
    """Next offset that MirrorMaker 2 will copy."""
    before: Mapping[TopicPartition, int]
    """Next offset that MirrorMaker 2 would copy without the export."""
    repeated: Mapping[TopicPartition, int]
    """Number of records that are on the target but not in the stored progress. MirrorMaker 2 copies
    them again."""


def plan_export(context: FlowContext, mirror: MirrorMaker) -> Export:
    """Return the plan of an export.

    Raises:
        InvalidSpec: The flow has copied nothing, or is failed over.
    """
    counts = context.source.topics()
    partitions = {
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if context.topics.matches(topic)
        for number in range(count)
    }
    stored = {
        at: one for at, one in stored_progress(context, partitions).items() if one is not None
    }
    if not stored:
        raise InvalidSpec(
            f"{context.target.name} holds no progress of flow {context.name}: there is no offset "
            "at which MirrorMaker 2 can resume"
        )
    if switched := [at for at, one in stored.items() if one.switch is not None]:
        raise InvalidSpec(
            f"{min(switched)} is failed over: what follows on {context.target.name} is no copy. "
            f"`headrace failover {context.name} --abort` undoes it"
        )
    before = mirror.positions() if mirror.exists and not mirror.is_empty else {}
    positions = {at: one.source_offset for at, one in sorted(stored.items())}
    return Export(positions, before, _repeated(context, stored))


def _repeated(
    context: FlowContext, stored: Mapping[TopicPartition, Progress]
) -> dict[TopicPartition, int]:
    """Return the number of target records after the stored progress, which a killed driver leaves.

    With ExactlyOnce there are none, because records and progress are committed together.
    """
    if context.exactly_once:
        return {}
    copies = {at: target_partition(context, at) for at in stored}
    ends = context.target.known_ends(frozenset(copies.values()))
    found = {}
    for at, copy in copies.items():
        start = stored[at].target_offset
        if ends.get(copy, 0) <= start:
            continue
        access, clients = context.target_access, context.clients
        tail = TopicTail(
            copy.topic,
            access,
            context.target,
            clients,
            context.clock,
            partition=copy.partition,
            start=start,
        )
        try:
            if count := sum(1 for _ in tail.read()):  # a log may also end with markers
                found[at] = count
        finally:
            tail.close()
    return found
