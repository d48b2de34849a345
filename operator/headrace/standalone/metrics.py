"""Metrics of a run, with the names that drivers and the operator use on Kubernetes.

A series of a task or a process has the additional label ``pod`` with the driver. On Kubernetes,
Prometheus adds that label.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.api import ConditionStatus, ConditionType, find_condition
from headrace.control.flow_actions import as_json
from headrace.driver.metrics import METRICS
from headrace.standalone.fleet import Samples
from headrace.standalone.herder import StandaloneHerder
from headrace.telemetry import FLOW_METRICS, flow_samples, make_registry
from headrace.telemetry.metrics import Object

_SAMPLES_TIMEOUT_S = 2.0
SCRAPE_TIMEOUT_S = 5.0
"""Time limit of a scrape in seconds, below Prometheus' default of 10 s."""
RUN = "run"
"""Value of ``pod`` for the process of ``headrace run`` itself."""


@dataclass(frozen=True)
class RunSnapshot:
    """Measurements of a run at one time."""

    flows: tuple[Object, ...]
    samples: dict[str, Samples]
    """Samples of units, by driver."""
    pids: dict[str, int]
    """Process ids of drivers, by name."""


def run_registry(herder: StandaloneHerder, loop: asyncio.AbstractEventLoop) -> CollectorRegistry:
    """Return a registry whose scrapes measure the run.

    A scrape runs in another thread. It lets ``loop`` measure the run, and waits for the result.
    """
    registry = make_registry(process=False)
    registry.register(_RunCollector(lambda: _wait(_measure(herder), loop)))
    return registry


def not_ready(herder: StandaloneHerder) -> list[str]:
    """Return a message for each flow that is not Ready."""
    conditions = {
        name: find_condition(herder.status(name).conditions, ConditionType.READY)
        for name in herder.flows()
    }
    return [
        f"{name}: {ready.message if ready else 'unknown'}"
        for name, ready in conditions.items()
        if ready is None or ready.status is not ConditionStatus.TRUE
    ]


async def _measure(herder: StandaloneHerder) -> RunSnapshot:
    """Measure the run. A driver that does not respond within 2 s is left out."""
    drivers = herder.alive()
    answers = await asyncio.gather(*(driver.samples(_SAMPLES_TIMEOUT_S) for driver in drivers))
    owners = {
        task.metadata.name: task.status.driver_name
        for flow in herder.flows()
        for task in herder.tasks(flow)
    }
    return RunSnapshot(
        flows=tuple(_flow(herder, name) for name in herder.flows()),
        # While a unit moves, its next owner also reports samples of it.
        samples={
            driver.name: [one for one in samples if owners.get(one[1][2]) == driver.name]
            for driver, samples in zip(drivers, answers, strict=True)
        },
        pids={driver.name: driver.pid for driver in drivers},
    )


def _flow(herder: StandaloneHerder, name: str) -> Object:
    """Return the fields of a flow that metrics need, in the API server's format."""
    flow = herder.flow(name)
    return {
        "metadata": {"namespace": flow.metadata.namespace, "name": name},
        "spec": {"state": flow.spec.state, "drivers": {"replicas": herder.size}},
        "status": as_json(herder.status(name)),
    }


def _wait(
    measuring: Coroutine[None, None, RunSnapshot], loop: asyncio.AbstractEventLoop
) -> RunSnapshot:
    return asyncio.run_coroutine_threadsafe(measuring, loop).result(SCRAPE_TIMEOUT_S)


class _RunCollector(Collector):
    def __init__(self, measured: Callable[[], RunSnapshot]) -> None:
        self._measured = measured

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that nothing is collected before the first scrape."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        measured = self._measured()
        flows = {metric: metric.family() for metric in FLOW_METRICS}
        for flow in measured.flows:
            for metric, labels, value in flow_samples(flow):
                flows[metric].add_metric(labels, value)
        units = {metric.name: metric.family("pod") for metric in METRICS}
        for driver, samples in measured.samples.items():
            for name, labels_of_unit, value in samples:
                units[name].add_metric([*labels_of_unit, driver], value)
        yield from flows.values()
        yield from units.values()
        yield from _processes({RUN: "self", **measured.pids})


def _processes(pids: dict[str, int | str]) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for name, pid in pids.items():
        for found in ProcessCollector(registry=None, pid=partial(str, pid)).collect():
            family = CounterMetricFamily if found.type == "counter" else GaugeMetricFamily
            described = families.setdefault(
                found.name, family(found.name, found.documentation, labels=["pod"])
            )
            described.add_metric([name], found.samples[0].value)
    yield from families.values()
