"""What is counted of the requests to the API server."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from headrace.k8s.kinds import Kind
from headrace.telemetry import Described

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
METRICS: Sequence[Described] = (REQUESTS, REQUEST_S)


class RequestMetrics:
    """Receives a client's requests (``Client.on_request``)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=registry)
        self._took = Histogram(REQUEST_S.name, REQUEST_S.help, REQUEST_S.labels, registry=registry)

    def __call__(self, verb: str, kind: Kind, outcome: str, took_s: float) -> None:
        """See ``Client.on_request``."""
        self._requests.labels(verb, kind.name, outcome).inc()
        self._took.labels(verb, kind.name).observe(took_s)
