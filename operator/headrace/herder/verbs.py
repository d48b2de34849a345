"""What a running flow is asked over its control socket."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from headrace.api import ReplicationTask
from headrace.errors import InvalidSpec
from headrace.herder.standalone import StandaloneHerder

Answer = dict[str, Any]


async def answer(herder: StandaloneHerder, flow: str, verb: str, arguments: Answer) -> Answer:
    """Do what ``verb`` says; ``InvalidSpec`` for one that is not known, or cannot be done now."""
    if verb not in _VERBS:
        raise InvalidSpec(f"unknown command {verb}: this run is of another version of headrace")
    return _VERBS[verb](herder, flow, **arguments)


def _status(herder: StandaloneHerder, flow: str) -> Answer:
    return {**_dump(herder.status(flow)), "units": [_unit(task) for task in herder.tasks(flow)]}


def _flow(herder: StandaloneHerder, flow: str) -> Answer:
    return _dump(herder.flow(flow))


def _describe(herder: StandaloneHerder, flow: str, task: str) -> Answer:
    return _dump(_named(herder, flow, task))


def _restart(herder: StandaloneHerder, flow: str, task: str) -> Answer:
    unit = _settled(_named(herder, flow, task))
    herder.restart(unit)
    return {"driver": unit.status.driver_name}


def _move(herder: StandaloneHerder, flow: str, task: str, driver: str) -> Answer:
    unit = _settled(_named(herder, flow, task))
    herder.move(unit, driver)
    return {"from": unit.status.driver_name}


def _pause(herder: StandaloneHerder, flow: str, paused: bool) -> Answer:
    herder.pause(flow, paused)
    return {}


def _scale(herder: StandaloneHerder, flow: str, drivers: int) -> Answer:
    return {"before": herder.scale(drivers)}


def _kill_driver(herder: StandaloneHerder, flow: str) -> Answer:
    return herder.kill_driver(flow)


_VERBS: dict[str, Callable[..., Answer]] = {
    "status": _status,
    "flow": _flow,
    "describe": _describe,
    "restart": _restart,
    "move": _move,
    "pause": _pause,
    "scale": _scale,
    "kill-driver": _kill_driver,
}


def _named(herder: StandaloneHerder, flow: str, name: str) -> ReplicationTask:
    tasks = {task.metadata.name: task for task in herder.tasks(flow)}
    if name not in tasks:
        raise InvalidSpec(f"flow {flow} has no task {name}; it has {', '.join(sorted(tasks))}")
    return tasks[name]


def _settled(task: ReplicationTask) -> ReplicationTask:
    """A unit on its way from one driver to another answers to neither."""
    name, to, held_by = task.metadata.name, task.spec.driver_name, task.status.driver_name
    if not held_by:
        raise InvalidSpec(f"no driver holds {name} at the moment: try again when it runs")
    if to != held_by:
        raise InvalidSpec(
            f"{name} is being handed over from {held_by} to {to}: try again in a moment"
        )
    return task


def _unit(task: ReplicationTask) -> Answer:
    return {
        "name": task.metadata.name,
        "type": str(task.spec.type),
        "assignedTo": task.spec.driver_name,
        "standbys": list(task.spec.standby_driver_names),
        **_dump(task.status),
    }


def _dump(model: BaseModel) -> Answer:
    dumped: Answer = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
