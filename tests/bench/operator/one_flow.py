"""One large flow: a driver is lost, the API server is unreachable."""

import asyncio
import random
import time
from collections.abc import Callable

from bench.operator.drivers import until_done
from bench.operator.figures import Loss, OneFlow, Restart
from bench.operator.ledger import Place, place_of
from bench.operator.many_flows import flow, units_of
from bench.operator.stage import NAMESPACE, POLL_INTERVAL_S, Stage

from headrace.api.labels import MOVE_ANNOTATION, PAUSE_ANNOTATION
from headrace.assign import TaskId
from headrace.k8s import Kind, Object
from headrace.k8s.kinds import FLOW, POD, TASK

NAME = "large"
CONNECTOR = TaskId(NAME, "SourceConnector", 0).name
LEASE, DELETED = "Lease expires", "pod deleted"
VARIANTS = (LEASE, DELETED)
LEASE_S = 6
"""Lease duration of each driver, which is a flow's default."""
CALM_S = 3.0
"""Seconds after which no more units move."""
WATCHED_S = 30.0
"""Seconds after an API server's return: enough for Leases to be misjudged."""


async def one_flow(
    stage: Stage, tasks: int, drivers: int, runs: int, *, restarts: int, seconds: float
) -> OneFlow:
    """Measure ``runs`` losses of each variant, one of the connector's driver, and ``restarts``."""
    stage.say(f"one flow of {tasks} tasks on {drivers} drivers is applied")
    began, windows = time.monotonic(), {}
    async with stage.window() as seen:
        await stage.client.create(flow(NAME, tasks, drivers, LEASE_S))
        await stage.settled(units_of(tasks))
        await stage.until(lambda: NAME in stage.ledger.ready, lambda: "the flow is not Ready yet")
    windows["apply"] = seen()
    ready_s = stage.ledger.ready[NAME] - began
    await asyncio.sleep(2 * CALM_S)
    stage.say(f"at rest for {seconds:.0f} s")
    async with stage.window() as seen:
        await asyncio.sleep(seconds)
    windows["at rest"] = seen()

    losses = []
    if runs:
        async with stage.window() as seen:
            for number in range(runs):
                for variant in VARIANTS:
                    stage.say(f"{variant}, run {number + 1} of {runs}")
                    losses.append(await _lose(stage, variant, with_connector=False))
        windows["losses"] = seen()
    for variant in VARIANTS:
        stage.say(f"{variant}, of the driver with the source connector")
        losses.append(await _lose(stage, variant, with_connector=True))
    outages = []
    for number in range(restarts):
        stage.say(f"API server restarted, run {number + 1} of {restarts}")
        outages.append(await _restart(stage, kill=number % 2 == 1))
    return OneFlow(tasks, drivers, ready_s, windows, losses, outages)


async def _lose(stage: Stage, variant: str, *, with_connector: bool) -> Loss:
    ledger, node = stage.ledger, stage.node
    holder = ledger.holders[CONNECTOR]
    victim = holder if with_connector else random.choice(sorted(node.drivers.keys() - {holder}))
    lost, mark = ledger.held_by(victim), len(ledger.entries)
    node.admits.clear()  # its replacement starts after the measurement
    began = time.monotonic()
    node.drivers.pop(victim).vanish()
    if variant == DELETED:
        await stage.client.delete(POD, NAMESPACE, victim, grace_s=0)
    await stage.until(
        lambda: ledger.are_elsewhere(lost, victim),
        lambda: f"{len(ledger.held_by(victim) & lost)} units are to be claimed",
    )
    await asyncio.sleep(CALM_S)
    moved = [entry for entry in ledger.since(mark, claims=False) if entry.driver != victim]
    claims = [entry for entry in ledger.since(mark, claims=True) if entry.task in lost]
    came = await _replace(stage, victim, variant)
    return Loss(
        variant,
        with_connector,
        len(lost),
        min(entry.at_s for entry in moved if entry.task in lost) - began,
        max(entry.at_s for entry in claims) - began,
        len({entry.task for entry in moved} - lost),
        len(ledger.held_by(came)),
    )


async def _replace(stage: Stage, victim: str, variant: str) -> str:
    """Another driver comes, or the same again; returned when it is filled."""
    before = set(stage.node.drivers)
    if variant == LEASE:
        await stage.node.restart(victim)
    stage.node.admits.set()
    await stage.until(
        lambda: any(stage.ledger.held_by(name) for name in stage.node.drivers.keys() - before),
        lambda: "the driver that came has no units yet",
    )
    (came,) = stage.node.drivers.keys() - before
    await stage.settled(len(stage.ledger.holders))
    await asyncio.sleep(CALM_S)
    await stage.settled(len(stage.ledger.holders))
    return came


async def _restart(stage: Stage, *, kill: bool) -> Restart:
    server, before, began = stage.api_server, await _placed(stage), time.monotonic()
    await asyncio.to_thread(server.kill if kill else server.stop)
    await asyncio.to_thread(server.start)
    back = time.monotonic()
    # A move to an unknown driver is refused: the annotation is removed, and nothing moves.
    await _annotate(stage, TASK, CONNECTOR, MOVE_ANNOTATION, "nowhere")
    await _until(stage, TASK, CONNECTOR, lambda unit: MOVE_ANNOTATION not in _annotations(unit))
    unit_s = time.monotonic() - back
    await _annotate(stage, FLOW, NAME, PAUSE_ANNOTATION, "true")
    await _until(stage, FLOW, NAME, _is_paused)
    flow_s = time.monotonic() - back
    await _annotate(stage, FLOW, NAME, PAUSE_ANNOTATION, None)
    await asyncio.sleep(WATCHED_S)
    after = await _placed(stage)
    await stage.settled(len(after))
    return Restart(
        "kill -9" if kill else "TERM",
        back - began,
        unit_s,
        flow_s,
        sum(now.wanted != before[name].wanted for name, now in after.items()),
        sum(now.epoch != before[name].epoch for name, now in after.items()),
    )


async def _placed(stage: Stage) -> dict[str, Place]:
    """Request the places of all units: a watch that is late would have missed moves."""
    found = await until_done(lambda: stage.client.list(TASK, NAMESPACE))
    return {unit["metadata"]["name"]: place_of(unit) for unit in found}


async def _annotate(stage: Stage, kind: Kind, name: str, annotation: str, to: str | None) -> None:
    patch: Object = {"metadata": {"annotations": {annotation: to}}}
    await until_done(lambda: stage.client.patch(kind, NAMESPACE, name, patch))


async def _until(stage: Stage, kind: Kind, name: str, is_so: Callable[[Object], bool]) -> None:
    while True:
        found = await until_done(lambda: stage.client.get(kind, NAMESPACE, name))
        if is_so(found or {}):
            return
        await asyncio.sleep(POLL_INTERVAL_S)


def _annotations(object: Object) -> Object:
    return object["metadata"].get("annotations") or {}


def _is_paused(flow: Object) -> bool:
    return any(one["reason"] == "ReconciliationPaused" for one in flow["status"]["conditions"])
