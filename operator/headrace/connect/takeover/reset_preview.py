"""Preview of a reset, by the current state of both clusters; nothing is written."""

from collections.abc import Set
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.runtime.both_clusters import known_topic_ids
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.first_positions import first_positions
from headrace.kafka import Position, replaced
from headrace.replication import Progress


class Preview(NamedTuple):
    """Preview of one partition; offsets are the source's."""

    stored: int | None
    """The next to copy, by its progress."""
    start: int
    """The next to copy, after a reset."""
    end: int
    repeated: int
    """Offsets of which the target may have a copy, and gets another."""


def preview_reset(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, Preview]:
    """Return previews; raise ``Retriable`` while brokers do not respond.

    Unreadable progress counts as none.
    """
    starts = first_positions(context, partitions)
    ends = context.source.offsets(partitions, Position.LATEST)
    ids = known_topic_ids(context, {at.topic for at in partitions})
    stored = _stored(context, partitions)
    return {
        at: Preview(
            known.source_offset if (known := stored.get(at)) else None,
            start,
            ends[at],
            _repeated(known, start, ids[at.topic]) if known else 0,
        )
        for at, start in starts.items()
    }


def _repeated(known: Progress, start: int, ids: tuple[str, str]) -> int:
    """Return the number of repeated offsets; 0 for a topic that was created again."""
    same = not (replaced(known.source_topic_id, ids[0]) or replaced(known.target_topic_id, ids[1]))
    return max(0, known.source_offset - start) if same else 0


def _stored(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, Progress]:
    progress = context.progress
    if not progress.exists():
        return {}  # to follow it would make it
    progress.start()
    progress.read_to_end()
    now_ms = context.now_ms
    found = {at: progress.get(context.progress_key(at), now_ms) for at in partitions}
    return {at: known for at, known in found.items() if known is not None}
