"""How a metric is described, and those that every process has."""

from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from headrace import __version__


@dataclass(frozen=True)
class Described:
    """A metric as the documentation has it; names are those of Prometheus' conventions."""

    name: str
    type: str
    """``gauge``, ``counter`` or ``histogram``."""
    help: str
    labels: tuple[str, ...] = ()

    def family(self, *more_labels: str) -> GaugeMetricFamily | CounterMetricFamily:
        """For a collector, which fills in what it finds at a scrape."""
        family = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return family(self.name, self.help, labels=(*self.labels, *more_labels))


BUILD_INFO = Described("headrace_build_info", "gauge", "1, by the version that runs.", ("version",))


def make_registry(*, process: bool = True) -> CollectorRegistry:
    """One for the process, with its version; with ``process`` also its CPU, memory and open
    files."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    if process:
        ProcessCollector(registry=registry)
    build = Gauge(BUILD_INFO.name, BUILD_INFO.help, BUILD_INFO.labels, registry=registry)
    build.labels(__version__).set(1)
    return registry
