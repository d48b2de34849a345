"""The metrics of a run, by the names that drivers and operator use on Kubernetes.

A series of a task or a process has one label more, ``pod``: the driver. There, Prometheus adds it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.driver.metrics import METRICS
from headrace.standalone.driver_process import Samples
from headrace.telemetry import FLOW_METRICS, flow_samples, make_registry
from headrace.telemetry.flows import Object

SCRAPE_TIMEOUT_S = 5.0
"""Of the 10 s that Prometheus waits by default."""
RUN = "run"
"""What stands in ``pod`` for the process of ``headrace run`` itself."""


@dataclass(frozen=True)
class Measured:
    """A run at one moment."""

    flows: tuple[Object, ...]
    samples: dict[str, Samples]
    """Of units, by driver."""
    pids: dict[str, int]
    """Of drivers."""


def run_registry(
    measure: Callable[[], Coroutine[None, None, Measured]], loop: asyncio.AbstractEventLoop
) -> CollectorRegistry:
    """Answers a scrape, which is collected on a thread, by ``measure`` on ``loop``."""
    registry = make_registry(process=False)
    registry.register(_RunCollector(lambda: _wait(measure(), loop)))
    return registry


def _wait(measuring: Coroutine[None, None, Measured], loop: asyncio.AbstractEventLoop) -> Measured:
    return asyncio.run_coroutine_threadsafe(measuring, loop).result(SCRAPE_TIMEOUT_S)


class _RunCollector(Collector):
    def __init__(self, measured: Callable[[], Measured]) -> None:
        self._measured = measured

    def describe(self) -> Iterable[Metric]:
        """See ``Collector``: nothing is collected before the first scrape."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """See ``Collector``."""
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
