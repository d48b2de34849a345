"""Handlers of the commands that arrive over a flow's control socket."""

import time
from collections.abc import Callable
from typing import Any

from headrace.api import RESET_ANNOTATION, FlowState
from headrace.control.flow_actions import (
    answer_pauses,
    answer_resets,
    as_json,
    change_pauses,
    change_resets,
    find_task,
    held_task,
    task_row,
)
from headrace.errors import InvalidSpec
from headrace.standalone.herder import StandaloneHerder

Answer = dict[str, Any]


async def answer(herder: StandaloneHerder, flow: str, verb: str, arguments: Answer) -> Answer:
    """Carry out the command ``verb``, and return its answer.

    Raise ``InvalidSpec`` if the verb is unknown, or the command is not possible now.
    """
    if verb not in _VERBS:
        raise InvalidSpec(f"unknown command {verb}: this run is of another version of headrace")
    return _VERBS[verb](herder, flow, **arguments)


def _status(herder: StandaloneHerder, flow: str) -> Answer:
    status = herder.status(flow)
    return {
        **as_json(status),
        "units": [task_row(task, status.lost_drivers) for task in herder.tasks(flow)],
        **({"notices": notices} if (notices := herder.notices()) else {}),
    }


def _flow(herder: StandaloneHerder, flow: str) -> Answer:
    return as_json(herder.flow(flow))


def _access(herder: StandaloneHerder, flow: str) -> Answer:
    return {**_secrets(herder), "flow": as_json(herder.flow(flow))}


def _dashboard(herder: StandaloneHerder, flow: str) -> Answer:
    if herder.dashboard is None:
        raise InvalidSpec(
            f"the run of {flow} serves no dashboard: start it with "
            "`headrace run FILE --metrics-port 9404`"
        )
    return {"url": herder.dashboard}


def _describe(herder: StandaloneHerder, flow: str, task: str) -> Answer:
    return as_json(find_task(herder.tasks(flow), flow, task))


def _restart(herder: StandaloneHerder, flow: str, task: str) -> Answer:
    held = held_task(find_task(herder.tasks(flow), flow, task))
    herder.restart(held)
    return {"driver": held.status.driver_name}


def _move(herder: StandaloneHerder, flow: str, task: str, driver: str) -> Answer:
    held = held_task(find_task(herder.tasks(flow), flow, task))
    herder.move(held, driver)
    return {"from": held.status.driver_name}


def _set_state(herder: StandaloneHerder, flow: str, state: str) -> Answer:
    before, wanted = herder.flow(flow), FlowState(state)
    fields: dict[str, Any] = {"state": wanted}
    if wanted is FlowState.RUNNING and before.spec.source_watch.enabled:
        fields["source_watch"] = before.spec.source_watch.model_copy(update={"enabled": False})
    herder.pause(flow, **fields)
    return answer_pauses(before, herder.flow(flow), herder.tasks(flow))


def _watch_source(herder: StandaloneHerder, flow: str, enabled: bool) -> Answer:
    watch = herder.flow(flow).spec.source_watch
    herder.pause(flow, source_watch=watch.model_copy(update={"enabled": enabled}))
    return {"changed": watch.enabled != enabled}


def _pause_partitions(herder: StandaloneHerder, flow: str, partitions: str, paused: bool) -> Answer:
    before = herder.flow(flow)
    herder.pause(flow, paused_partitions=change_pauses(before, partitions, paused=paused))
    return answer_pauses(before, herder.flow(flow), herder.tasks(flow), partitions)


def _reset(herder: StandaloneHerder, flow: str, partitions: str, dry_run: bool) -> Answer:
    answered = answer_resets(herder.flow(flow), herder.tasks(flow), partitions)
    resets = change_resets(herder.flow(flow), partitions, _now_ms())
    if not dry_run:
        herder.annotate(flow, RESET_ANNOTATION, str(resets))
    return {**answered, **_secrets(herder)}


def _scale(herder: StandaloneHerder, flow: str, drivers: int) -> Answer:
    return {"timeMs": _now_ms(), "before": herder.scale(drivers), "size": drivers}


def _drivers(herder: StandaloneHerder, flow: str) -> Answer:
    return {"alive": [driver.name for driver in herder.alive()]}


def _roll_drivers(herder: StandaloneHerder, flow: str) -> Answer:
    old = {"timeMs": _now_ms(), "drivers": [driver.name for driver in herder.alive()]}
    herder.roll_drivers()
    return {**old, "size": herder.size}


def _kill_driver(herder: StandaloneHerder, flow: str) -> Answer:
    return herder.faults.kill(flow)


def _freeze_driver(herder: StandaloneHerder, flow: str) -> Answer:
    return herder.faults.freeze(flow)


def _secrets(herder: StandaloneHerder) -> Answer:
    """Return the folder of Secrets that gives access to the clusters of the flows."""
    return {"secrets": str(herder.secrets) if herder.secrets else None}


def _now_ms() -> int:
    return int(time.time() * 1000)


_VERBS: dict[str, Callable[..., Answer]] = {
    "status": _status,
    "flow": _flow,
    "access": _access,
    "dashboard": _dashboard,
    "describe": _describe,
    "restart": _restart,
    "move": _move,
    "set-state": _set_state,
    "watch-source": _watch_source,
    "pause-partitions": _pause_partitions,
    "reset": _reset,
    "scale": _scale,
    "drivers": _drivers,
    "roll-drivers": _roll_drivers,
    "kill-driver": _kill_driver,
    "freeze-driver": _freeze_driver,
}
