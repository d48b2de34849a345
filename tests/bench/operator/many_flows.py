"""Many flows: how long until all are Ready, and what the operator costs when idle and in churn."""

import asyncio
import time
from collections.abc import Sequence

from bench.operator.drivers import TASKS
from bench.operator.figures import ManyFlows, Seen
from bench.operator.stage import NAMESPACE, Stage

from headrace.api.labels import FLOW_LABEL
from headrace.k8s import Object
from headrace.k8s.kinds import FLOW, POD

AT_ONCE = 16
DRIVERS = 2
"""Drivers of each flow."""
LEASE_S = 60
"""Lease duration of each driver.

If 400 drivers renewed every 2 s, two cores would leave no API server to measure.
"""
CALM_S = 10.0
"""Seconds between two windows, in which the first one's work ends."""


def flow(name: str, tasks: int, drivers: int, lease_s: int) -> Object:
    """Return a flow between clusters that do not exist, because no process connects to them."""
    return {
        "apiVersion": FLOW.api_version,
        "kind": FLOW.name,
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {TASKS: str(tasks)}},
        "spec": {
            "source": {"alias": "source", "bootstrapServers": "source.invalid:9092"},
            "target": {"alias": "target", "bootstrapServers": "target.invalid:9092"},
            "topics": {"include": [name]},
            "drivers": {"replicas": drivers, "leaseSeconds": lease_s},
        },
    }


def units_of(tasks: int) -> int:
    """Return the number of units: three connectors and the heartbeat task are added."""
    return tasks + 4


async def many_flows(stage: Stage, flows: int, tasks: int, seconds: float) -> ManyFlows:
    """Apply ``flows`` of ``tasks`` each; then rest, touch, churn, for ``seconds`` each."""
    names = [f"flow-{number:03}" for number in range(flows)]
    windows: dict[str, Seen] = {}
    stage.say(f"{flows} flows are applied")
    async with stage.window() as seen:
        applied = await _apply(stage, names, tasks)
        await stage.until(
            lambda: len(stage.ledger.ready) == flows,
            lambda: f"{len(stage.ledger.ready)} of {flows} flows are Ready",
        )
        await stage.settled(flows * units_of(tasks))
    windows["apply"] = seen()
    ready_s = [stage.ledger.ready[name] - applied[name] for name in names]

    await asyncio.sleep(CALM_S)
    stage.say(f"at rest for {seconds:.0f} s")
    async with stage.window() as seen:
        await asyncio.sleep(seconds)
    windows["at rest"] = seen()

    stage.say("every flow is looked at, though nothing is to be done")
    async with stage.window() as seen:
        for name in names:
            touch: Object = {"metadata": {"annotations": {"bench/touched": "true"}}}
            await stage.client.patch(FLOW, NAMESPACE, name, touch)
        await asyncio.sleep(CALM_S)
    windows["a look at each"] = seen()

    stage.say(f"each second a driver leaves and another joins, for {seconds:.0f} s")
    async with stage.window() as seen:
        await _churn(stage, names, seconds)
        await stage.settled(flows * units_of(tasks))
    windows["churn"] = seen()
    return ManyFlows(flows, tasks, ready_s, windows)


async def _apply(stage: Stage, names: Sequence[str], tasks: int) -> dict[str, float]:
    places = asyncio.Semaphore(AT_ONCE)
    applied: dict[str, float] = {}

    async def apply(name: str) -> None:
        async with places:
            applied[name] = time.monotonic()
            await stage.client.create(flow(name, tasks, DRIVERS, LEASE_S))

    await asyncio.gather(*map(apply, names))
    return applied


async def _churn(stage: Stage, names: Sequence[str], seconds: float) -> None:
    """Delete pods as a drain does: their drivers hand over, and the Deployment creates others."""
    began = time.monotonic()
    for turn in range(int(seconds)):
        name = names[turn % len(names)]
        pods = [
            pod["metadata"]["name"]
            for pod in stage.node.pods
            if pod["metadata"]["labels"][FLOW_LABEL] == name
            and pod["metadata"]["name"] in stage.node.drivers
        ]
        if pods:  # otherwise both are being replaced
            await stage.client.delete(POD, NAMESPACE, min(pods), grace_s=30)
        await asyncio.sleep(max(0.0, began + turn + 1 - time.monotonic()))
