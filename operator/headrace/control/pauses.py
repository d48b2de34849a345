"""Changes of ``spec.pausedPartitions`` by ``headrace flow pause`` and ``resume``, without I/O."""

from collections.abc import Iterable
from typing import Any

from headrace.api import (
    PausedPartitions,
    Pauses,
    ReplicationFlow,
    ReplicationTask,
    TaskType,
    TopicPartitions,
)
from headrace.errors import InvalidSpec

Answer = dict[str, Any]


def parse_partitions(text: str) -> PausedPartitions:
    """``orders`` or ``orders/0-3,7``; ``InvalidSpec`` for anything else."""
    topic, slash, partitions = text.partition("/")
    document = {"topic": topic} | ({"partitions": partitions} if slash else {})
    try:
        return PausedPartitions.model_validate(document)
    except ValueError:
        raise InvalidSpec(
            f"{text!r} is neither a topic nor some of its partitions, like orders or orders/0-3,7"
        ) from None


def change_pauses(
    flow: ReplicationFlow, partitions: str, *, paused: bool
) -> tuple[PausedPartitions, ...]:
    """The field as it is to be; ``InvalidSpec`` when that cannot be resumed."""
    pauses = Pauses.of(flow.spec.paused_partitions)
    item = parse_partitions(partitions)
    return (pauses.with_also(item) if paused else pauses.without(item)).items


def answer_pauses(
    before: ReplicationFlow,
    flow: ReplicationFlow,
    tasks: Iterable[ReplicationTask],
    partitions: str = "",
) -> Answer:
    """For a person: whether anything changed since ``before``, how many partitions of the flow are
    meant, and what is paused now."""
    packed = [
        item
        for task in tasks
        if task.spec.type is TaskType.SOURCE_TASK
        for item in task.spec.partitions
    ]
    meant = Pauses.of([parse_partitions(partitions)] if partitions else [])
    return {
        "changed": _paused(before) != _paused(flow),
        "meant": len(meant.among(TopicPartitions.unpack(packed))),
        "paused": [str(item) for item in flow.spec.paused_partitions],
        "state": str(flow.spec.state),
    }


def _paused(flow: ReplicationFlow) -> tuple[str, tuple[PausedPartitions, ...]]:
    return str(flow.spec.state), flow.spec.paused_partitions
