"""What Prometheus reads of a process: how a metric is described, and those that all have."""

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from headrace import __version__
from headrace.k8s.kinds import Kind


@dataclass(frozen=True)
class Described:
    """A metric as the documentation has it; names are those of Prometheus' conventions."""

    name: str
    type: str
    """``gauge``, ``counter`` or ``histogram``."""
    help: str
    labels: tuple[str, ...] = ()

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        """For a collector, which fills in what it finds at a scrape."""
        family = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return family(self.name, self.help, labels=self.labels)


BUILD_INFO = Described("headrace_build_info", "gauge", "1, by the version that runs.", ("version",))
REQUESTS = Described(
    "headrace_api_requests_total",
    "counter",
    "Requests to the API server, by verb, kind and outcome: Success, or why not. A watch counts "
    "when it is opened.",
    ("verb", "kind", "outcome"),
)
REQUEST_S = Described(
    "headrace_api_request_duration_seconds",
    "histogram",
    "How long requests to the API server took; opening it, for a watch.",
    ("verb", "kind"),
)
METRICS: Sequence[Described] = (BUILD_INFO, REQUESTS, REQUEST_S)


def make_registry() -> CollectorRegistry:
    """One for the process: with its version, CPU, memory and open files."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Gauge(BUILD_INFO.name, BUILD_INFO.help, BUILD_INFO.labels, registry=registry)
    build.labels(__version__).set(1)
    return registry


class RequestMetrics:
    """Receives a client's requests (``Client.on_request``)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=registry)
        self._took = Histogram(REQUEST_S.name, REQUEST_S.help, REQUEST_S.labels, registry=registry)

    def __call__(self, verb: str, kind: Kind, outcome: str, took_s: float) -> None:
        """See ``Client.on_request``."""
        self._requests.labels(verb, kind.name, outcome).inc()
        self._took.labels(verb, kind.name).observe(took_s)
