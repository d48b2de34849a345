"""Tasks as commands show them, wherever they are kept; pure."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel

from headrace.api import ReplicationTask, TaskType
from headrace.errors import InvalidSpec

Answer = dict[str, Any]


def find_task(tasks: Iterable[ReplicationTask], flow: str, name: str) -> ReplicationTask:
    """The task of that name; raises ``InvalidSpec`` when the flow has none."""
    there = {task.metadata.name: task for task in tasks}
    if name not in there:
        raise InvalidSpec(f"flow {flow} has no task {name}; it has {', '.join(sorted(there))}")
    return there[name]


def held_task(task: ReplicationTask) -> ReplicationTask:
    """The same; ``InvalidSpec`` for one that is handed over: neither driver acts on it then."""
    name, to, held_by = task.metadata.name, task.spec.driver_name, task.status.driver_name
    if not held_by:
        raise InvalidSpec(f"no driver holds {name} at the moment: try again when it runs")
    if to != held_by:
        raise InvalidSpec(
            f"{name} is being handed over from {held_by} to {to}: try again in a moment"
        )
    return task


def target_driver(tasks: Iterable[ReplicationTask], drivers: Collection[str], flow: str) -> str:
    """Of these drivers the one that holds most source tasks of a flow: the one to break in a test.

    Raises ``InvalidSpec`` when none of them holds any.
    """
    held = Counter(
        task.status.driver_name
        for task in tasks
        if task.spec.type is TaskType.SOURCE_TASK and task.status.driver_name in drivers
    )
    if not held:
        raise InvalidSpec(f"no driver holds a source task of flow {flow}: nothing to break")
    return max(held, key=lambda driver: (held[driver], driver))


def task_row(task: ReplicationTask) -> Answer:
    """A row of ``headrace task list``."""
    return {
        "name": task.metadata.name,
        "type": str(task.spec.type),
        "assignedTo": task.spec.driver_name,
        "standbys": list(task.spec.standby_driver_names),
        "driverName": "",
        **as_json(task.status),
    }


def as_json(model: BaseModel) -> Answer:
    """The whole model as JSON."""
    dumped: Answer = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
