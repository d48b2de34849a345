"""Units as commands show them, wherever they are kept; pure."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from headrace.api import ReplicationTask
from headrace.errors import InvalidSpec

Answer = dict[str, Any]


def named(tasks: Iterable[ReplicationTask], flow: str, name: str) -> ReplicationTask:
    """The unit of that name; raises ``InvalidSpec`` when the flow has none."""
    there = {task.metadata.name: task for task in tasks}
    if name not in there:
        raise InvalidSpec(f"flow {flow} has no task {name}; it has {', '.join(sorted(there))}")
    return there[name]


def settled(task: ReplicationTask) -> ReplicationTask:
    """The same; ``InvalidSpec`` for one on its way between two drivers: it answers to neither."""
    name, to, held_by = task.metadata.name, task.spec.driver_name, task.status.driver_name
    if not held_by:
        raise InvalidSpec(f"no driver holds {name} at the moment: try again when it runs")
    if to != held_by:
        raise InvalidSpec(
            f"{name} is being handed over from {held_by} to {to}: try again in a moment"
        )
    return task


def unit(task: ReplicationTask) -> Answer:
    """A row of ``headrace tasks``."""
    return {
        "name": task.metadata.name,
        "type": str(task.spec.type),
        "assignedTo": task.spec.driver_name,
        "standbys": list(task.spec.standby_driver_names),
        "driverName": "",
        **describe(task.status),
    }


def describe(model: BaseModel) -> Answer:
    """All of it, as JSON has it."""
    dumped: Answer = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
