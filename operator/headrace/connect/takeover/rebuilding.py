"""``headrace flow rebuild``: deletes a copy that cannot continue its source's offsets.

The owner of the partition creates the copy again. A log cannot be shortened from outside, so a
topic is deleted as a whole. A single partition can be rebuilt only if its source begins behind the
end of the copy (because of retention): its records are deleted, and its owner fills it up to there.
"""

import time
from collections.abc import Mapping, Set
from typing import NamedTuple

from headrace.api import TopicPartition, format_ranges
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import GaveUp, InvalidSpec
from headrace.kafka import Position

_GONE_WITHIN_S = 30.0
_POLL_S = 0.2


class Copy(NamedTuple):
    """Offsets of one partition on both clusters."""

    source_start: int
    source_end: int
    """End of the committed records."""
    start: int
    end: int

    @property
    def overtaken(self) -> bool:
        """Whether the source has deleted everything that the copy has, and its next record."""
        return self.end <= self.source_start

    @property
    def only_there(self) -> int:
        """Number of offsets of the copy that the source lacks, and that cannot be copied again.

        They were deleted on the source, or are after its end.
        """
        before = max(0, min(self.source_start, self.end) - self.start)
        return before + max(0, self.end - max(self.source_end, self.start))


class Rebuild(NamedTuple):
    """Effect on one topic of the target."""

    topic: str
    """On the target."""
    copies: Mapping[TopicPartition, Copy]
    """By the partition of the source."""
    topic_id: str
    """Id of the topic that is deleted. Empty: only records of these partitions are deleted."""


def plan_rebuild(context: FlowContext, partitions: Set[TopicPartition]) -> Rebuild:
    """Plan a rebuild for ``partitions`` of one topic of the source.

    Raise ``InvalidSpec`` with a sentence if it is impossible, and ``Retriable`` while brokers do
    not respond.
    """
    if not context.preserved:
        raise InvalidSpec(
            f"flow {context.name} has offsets.mode: Translated, where no copy has to be rebuilt: "
            f"`headrace flow reset {context.name}` copies partitions again"
        )
    (name,) = {at.topic for at in partitions}
    topic = context.policy.target_topic(name)
    source = context.source.describe([name]).get(name)
    copy = context.target.describe([topic]).get(topic)
    if source is None:
        raise InvalidSpec(
            f"{context.source.name} has no topic {name} any more: {topic} could not be made again"
        )
    if copy is None:
        raise InvalidSpec(
            f"{context.target.name} has no topic {topic}: the flow makes it, and copies all of it"
        )
    _check_not_failed_over(context, partitions)
    theirs = {at: target_partition(context, at) for at in partitions}
    starts = context.source.offsets(partitions, Position.EARLIEST)
    ends = context.source.offsets(partitions, Position.LAST_STABLE)
    copy_starts = context.target.offsets(theirs.values(), Position.EARLIEST)
    copy_ends = context.target.offsets(theirs.values(), Position.LATEST)
    copies = {
        at: Copy(starts[at], ends[at], copy_starts[theirs[at]], copy_ends[theirs[at]])
        for at in sorted(partitions)
    }
    if {at.partition for at in partitions} >= set(range(source.partitions)):
        return Rebuild(topic, copies, copy.topic_id)
    left = {at.partition for at, one in copies.items() if not one.overtaken}
    if left:
        raise InvalidSpec(
            f"{topic}/{format_ranges(left)} cannot be rebuilt without the other partitions: a log "
            "cannot be made shorter, and the source still has what would come before its end; "
            f"`headrace flow rebuild {context.name} {name}` rebuilds all {source.partitions} "
            "partitions of the topic"
        )
    return Rebuild(topic, copies, "")


def _check_not_failed_over(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    progress = context.progress
    if not progress.exists():
        return  # to follow it would make it
    progress.start()
    progress.read_to_end()
    for at in sorted(partitions):
        stored = context.stored(at)
        if stored is not None and stored.switch is not None:
            raise InvalidSpec(
                f"{at} was failed over to {context.target.name}: applications may have written to "
                f"its copy since then, which would be lost; `headrace failover {context.name} "
                "--abort` gives that up"
            )


def copy_ends(context: FlowContext, plan: Rebuild) -> dict[TopicPartition, int]:
    """Return the ends on the target, which stay the same while nothing is written."""
    theirs = [target_partition(context, at) for at in plan.copies]
    return context.target.offsets(theirs, Position.LATEST)


def delete_copies(context: FlowContext, plan: Rebuild) -> None:
    """Delete the copies, which nothing copies now; they no longer exist when this returns."""
    target = context.target
    if not plan.topic_id:
        target.delete_records(copy_ends(context, plan))
        return
    target.delete_topic(plan.topic)
    deadline_s = time.monotonic() + _GONE_WITHIN_S
    while True:
        there = target.describe([plan.topic]).get(plan.topic)
        if there is None or there.topic_id != plan.topic_id:
            return
        if time.monotonic() > deadline_s:
            raise GaveUp(
                f"{plan.topic} is still on {target.name} after {_GONE_WITHIN_S:.0f} s: "
                "delete.topic.enable may be false there; nothing is copied again yet"
            )
        time.sleep(_POLL_S)
