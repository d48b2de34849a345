"""Whether a flow has copied all that was there when it began."""

from collections.abc import Sequence

from headrace.api import (
    ConditionStatus,
    ConditionType,
    ReplicationTask,
    TaskPhase,
    TaskType,
    condition,
)


def caught_up(tasks: Sequence[ReplicationTask]) -> bool:
    """Whether the source connector polled, and every source task reached its first log ends."""
    connector = next(t for t in tasks if t.spec.type is TaskType.SOURCE_CONNECTOR)
    copying = [task for task in tasks if task.spec.type is TaskType.SOURCE_TASK]
    if connector.status.phase is not TaskPhase.RUNNING or not connector.status.conditions:
        return False
    return all(_reached_ends(task) for task in copying)


def progress_of(tasks: Sequence[ReplicationTask]) -> list[tuple[object, ...]]:
    """What changes while a flow progresses."""
    return [(t.metadata.name, t.status.phase, t.status.lag and t.status.lag.records) for t in tasks]


def why_behind(tasks: Sequence[ReplicationTask]) -> str:
    """Why it does not progress."""
    for task in tasks:
        if task.status.last_error:
            return f"{task.metadata.name}: {task.status.last_error.message}"
        ready = condition(task.status.conditions, ConditionType.READY)
        if ready is not None and ready.status is ConditionStatus.FALSE:
            return ready.message
        if paused := condition(task.status.conditions, ConditionType.PARTITIONS_PAUSED):
            return f"{task.metadata.name}: {paused.message}"
    waiting = [t.metadata.name for t in tasks if t.status.phase is not TaskPhase.RUNNING]
    return f"still waiting for {', '.join(waiting)}" if waiting else "records are still on the way"


def _reached_ends(task: ReplicationTask) -> bool:
    reached = condition(task.status.conditions, ConditionType.CAUGHT_UP)
    return (
        task.status.phase is TaskPhase.RUNNING
        and task.status.observed_generation is not None
        and reached is not None
        and reached.status is ConditionStatus.TRUE
    )
