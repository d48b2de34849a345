"""Requests of ``headrace flow reset``, without I/O."""

from collections.abc import Iterable
from typing import Any

from headrace.api import (
    ReplicationFlow,
    ReplicationTask,
    Resets,
    TaskType,
    TopicPartition,
    TopicPartitions,
    format_ranges,
    parse_ranges,
)
from headrace.control.pauses import parse_partitions
from headrace.control.task_rows import as_json
from headrace.errors import InvalidSpec

Answer = dict[str, Any]

_MOST_TOPICS = 10


def change_resets(flow: ReplicationFlow, partitions: str, now_ms: int) -> Resets:
    """The annotation as it is to be; ``InvalidSpec`` when the one that is there cannot be read."""
    item = parse_partitions(partitions)
    numbers = None if item.partitions is None else parse_ranges(item.partitions)
    return Resets.asked(flow.metadata).also(item.topic, numbers, now_ms)


def answer_resets(
    flow: ReplicationFlow, tasks: Iterable[ReplicationTask], partitions: str
) -> Answer:
    """The flow, and those of its partitions that are meant; ``InvalidSpec`` if it lacks any."""
    copied = frozenset[TopicPartition]().union(
        *(
            TopicPartitions.unpack(task.spec.partitions)
            for task in tasks
            if task.spec.type is TaskType.SOURCE_TASK
        )
    )
    meant = _meant(flow.metadata.name, copied, partitions)
    return {
        "flow": as_json(flow),
        "partitions": [as_json(packed) for packed in TopicPartitions.pack(meant)],
    }


def _meant(
    flow: str, copied: frozenset[TopicPartition], partitions: str
) -> frozenset[TopicPartition]:
    item = parse_partitions(partitions)
    there = {at.partition for at in copied if at.topic == item.topic}
    if not there:
        topics = sorted({at.topic for at in copied})
        listed = ", ".join(topics[:_MOST_TOPICS]) or "no topic yet"
        more = ", ..." if len(topics) > _MOST_TOPICS else ""
        raise InvalidSpec(f"flow {flow} does not copy topic {item.topic}; it copies {listed}{more}")
    numbers = there if item.partitions is None else set(parse_ranges(item.partitions))
    if absent := numbers - there:
        raise InvalidSpec(
            f"flow {flow} does not copy {item.topic}/{format_ranges(absent)}; "
            f"of {item.topic} it copies {format_ranges(there)}"
        )
    return frozenset(TopicPartition(item.topic, number) for number in numbers)
