"""Actions of commands on a flow: pauses, resets, catching up, and lists of tasks."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from headrace.api import (
    ConditionStatus,
    ConditionType,
    PausedPartitions,
    Pauses,
    ReplicationFlow,
    ReplicationTask,
    Resets,
    TaskPhase,
    TaskType,
    TopicPartition,
    TopicPartitions,
    find_condition,
    format_ranges,
    parse_ranges,
)
from headrace.errors import InvalidSpec

Answer = dict[str, Any]


def parse_partitions(text: str) -> PausedPartitions:
    """Parse ``orders`` or ``orders/0-3,7``. Raise ``InvalidSpec`` for other texts."""
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
    """Return ``spec.pausedPartitions`` after pausing or resuming partitions.

    Raise ``InvalidSpec`` if the partitions cannot be resumed.
    """
    pauses = Pauses.of(flow.spec.paused_partitions)
    item = parse_partitions(partitions)
    return (pauses.with_also(item) if paused else pauses.without(item)).items


def answer_pauses(
    before: ReplicationFlow,
    flow: ReplicationFlow,
    tasks: Iterable[ReplicationTask],
    partitions: str = "",
) -> Answer:
    """Return the response to a change of pauses.

    It says whether the pauses differ from ``before``, how many partitions of the flow match
    ``partitions``, which partitions are paused now, and the flow's state.
    """
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


def find_task(tasks: Iterable[ReplicationTask], flow: str, name: str) -> ReplicationTask:
    """Return the task of that name. Raise ``InvalidSpec`` if the flow has none."""
    there = {task.metadata.name: task for task in tasks}
    if name not in there:
        raise InvalidSpec(f"flow {flow} has no task {name}; it has {', '.join(sorted(there))}")
    return there[name]


def held_task(task: ReplicationTask) -> ReplicationTask:
    """Return the task if its assigned driver holds it. Raise ``InvalidSpec`` otherwise."""
    name, to, held_by = task.metadata.name, task.spec.driver_name, task.status.driver_name
    if not held_by:
        raise InvalidSpec(f"no driver holds {name} at the moment: try again when it runs")
    if to != held_by:
        raise InvalidSpec(f"{name} is moving from {held_by} to {to}: try again in a moment")
    return task


def target_driver(tasks: Iterable[ReplicationTask], drivers: Collection[str], flow: str) -> str:
    """Return the driver in ``drivers`` with the most source tasks, as the target of a fault.

    Raise ``InvalidSpec`` if none of them holds any.
    """
    held = Counter(
        task.status.driver_name
        for task in tasks
        if task.spec.type is TaskType.SOURCE_TASK and task.status.driver_name in drivers
    )
    if not held:
        raise InvalidSpec(
            f"no driver holds a source task of flow {flow}, so there is nothing to break"
        )
    return max(held, key=lambda driver: (held[driver], driver))


_FIGURES = ("lag", "bytesPerSecond")


def task_row(task: ReplicationTask, lost_drivers: Collection[str]) -> Answer:
    """Return a row of ``headrace task list``, without figures if the task's driver is lost."""
    status = as_json(task.status)
    if task.status.driver_name in lost_drivers:
        status = {name: value for name, value in status.items() if name not in _FIGURES}
        status["phase"] = "Unknown"
    return {
        "name": task.metadata.name,
        "type": str(task.spec.type),
        "assignedTo": task.spec.driver_name,
        "standbys": list(task.spec.standby_driver_names),
        "driverName": "",
        **status,
    }


def as_json(model: BaseModel) -> Answer:
    """Return the model as a JSON object without None values."""
    dumped: Answer = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


_MAX_TOPICS = 10


def change_resets(flow: ReplicationFlow, partitions: str, now_ms: int) -> Resets:
    """Return the new resets. Raise ``InvalidSpec`` if the existing annotation is invalid."""
    item = parse_partitions(partitions)
    numbers = None if item.partitions is None else parse_ranges(item.partitions)
    return Resets.from_metadata(flow.metadata).with_reset(item.topic, numbers, now_ms)


def answer_resets(
    flow: ReplicationFlow, tasks: Iterable[ReplicationTask], partitions: str
) -> Answer:
    """Return the flow, and the partitions that ``partitions`` names.

    Raise ``InvalidSpec`` if at least one of them is not copied by the flow.
    """
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
        listed = ", ".join(topics[:_MAX_TOPICS]) or "no topic yet"
        more = ", ..." if len(topics) > _MAX_TOPICS else ""
        raise InvalidSpec(f"flow {flow} does not copy topic {item.topic}; it copies {listed}{more}")
    numbers = there if item.partitions is None else set(parse_ranges(item.partitions))
    if absent := numbers - there:
        raise InvalidSpec(
            f"flow {flow} does not copy {item.topic}/{format_ranges(absent)}; "
            f"of {item.topic} it copies {format_ranges(there)}"
        )
    return frozenset(TopicPartition(item.topic, number) for number in numbers)


def caught_up(tasks: Sequence[ReplicationTask]) -> bool:
    """Return True if every source task has copied all records from before its start.

    Return False until the source connector has polled for the first time.
    """
    connector = next(t for t in tasks if t.spec.type is TaskType.SOURCE_CONNECTOR)
    copying = [task for task in tasks if task.spec.type is TaskType.SOURCE_TASK]
    if connector.status.phase is not TaskPhase.RUNNING or not connector.status.conditions:
        return False
    return all(_reached_ends(task) for task in copying)


def progress_of(tasks: Sequence[ReplicationTask]) -> list[tuple[object, ...]]:
    """Return values that change while a flow makes progress."""
    return [(t.metadata.name, t.status.phase, t.status.lag and t.status.lag.records) for t in tasks]


def why_behind(tasks: Sequence[ReplicationTask]) -> str:
    """Return the reason why a flow makes no progress."""
    for task in tasks:
        if task.status.last_error:
            return f"{task.metadata.name}: {task.status.last_error.message}"
        ready = find_condition(task.status.conditions, ConditionType.READY)
        if ready is not None and ready.status is ConditionStatus.FALSE:
            return ready.message
        if paused := find_condition(task.status.conditions, ConditionType.PARTITIONS_PAUSED):
            return f"{task.metadata.name}: {paused.message}"
    waiting = [t.metadata.name for t in tasks if t.status.phase is not TaskPhase.RUNNING]
    return f"still waiting for {', '.join(waiting)}" if waiting else "records are still in flight"


def _reached_ends(task: ReplicationTask) -> bool:
    reached = find_condition(task.status.conditions, ConditionType.CAUGHT_UP)
    return (
        task.status.phase is TaskPhase.RUNNING
        and task.status.observed_generation is not None
        and reached is not None
        and reached.status is ConditionStatus.TRUE
    )
