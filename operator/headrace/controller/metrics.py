"""Metrics of the operator: statuses of flows and finished tests, reconciles and leadership."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.k8s import FLOW, MIRROR_TEST, Object
from headrace.telemetry import (
    FLOW_METRICS,
    TEST_METRICS,
    Described,
    Sample,
    ended_s,
    flow_samples,
    test_samples,
)

LEADS = Described(
    "headrace_operator_leader",
    "gauge",
    "1 while this replica leads, else 0. Only that one has series of flows, tests and reconciles.",
)
QUEUE = Described(
    "headrace_reconcile_queue_length",
    "gauge",
    "Objects that are queued for a reconcile, or being reconciled.",
    ("kind",),
)
RECONCILE_S = Described(
    "headrace_reconcile_duration_seconds",
    "histogram",
    "How long reconciles took; its count is how many there were.",
    ("kind",),
)
RECONCILE_ERRORS = Described(
    "headrace_reconcile_errors_total",
    "counter",
    "Reconciles that failed; each is tried again.",
    ("kind",),
)
_COLLECTED = (
    *FLOW_METRICS,
    *TEST_METRICS,
    LEADS,
    QUEUE,
)
METRICS: Sequence[Described] = (*_COLLECTED, RECONCILE_S, RECONCILE_ERRORS)


class Reconciled(Protocol):
    """Objects of one kind that this replica reconciles. Methods are called from any thread."""

    def objects(self) -> Iterable[Object]:
        """Return all objects."""

    def queue_length(self) -> int:
        """Return the number of objects that are due or in work."""


class OperatorMetrics(Collector):
    """Collects the operator's metrics. A replica that does not lead reports only this fact.

    Metrics are collected in another thread. The objects that are read never change in place.
    """

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._flows: Reconciled | None = None
        self._tests: Reconciled | None = None
        self._took = Histogram(
            RECONCILE_S.name, RECONCILE_S.help, RECONCILE_S.labels, registry=registry
        )
        self._errors = Counter(
            RECONCILE_ERRORS.name, RECONCILE_ERRORS.help, RECONCILE_ERRORS.labels, registry=registry
        )
        registry.register(self)

    def lead(self, flows: Reconciled, tests: Reconciled | None) -> None:
        """Set the flows and MirrorTests that this replica reconciles."""
        self._flows, self._tests = flows, tests

    def reconciles(self, kind: str) -> Callable[[float, bool], None]:
        """Return a callback that receives the duration of each reconcile, and True if it failed."""
        took, errors = self._took.labels(kind), self._errors.labels(kind)

        def reconciled(took_s: float, failed: bool) -> None:
            took.observe(took_s)
            errors.inc(failed)

        return reconciled

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        families = {metric: metric.family() for metric in _COLLECTED}
        for metric, labels, value in self._samples():
            families[metric].add_metric(labels, value)
        yield from families.values()

    def _samples(self) -> Iterator[Sample]:
        yield LEADS, (), self._leads()
        if self._flows is not None:
            yield QUEUE, (FLOW.name,), self._flows.queue_length()
            for flow in self._flows.objects():
                yield from flow_samples(flow)
        if self._tests is not None:
            yield QUEUE, (MIRROR_TEST.name,), self._tests.queue_length()
            for name, status in _finished(self._tests.objects()).items():
                yield from test_samples(name, status)


def _finished(tests: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """Return the statuses of tests that ended, by namespace and name.

    Runs of a schedule are created and deleted. Their last result is listed under the name of the
    schedule, which has no verdict itself.
    """
    ended: dict[tuple[str, str], Object] = {}
    for test in tests:
        metadata, status = test["metadata"], test.get("status") or {}
        if "verdict" not in status:
            continue
        owners = metadata.get("ownerReferences") or ()
        schedules = [owner["name"] for owner in owners if owner["kind"] == MIRROR_TEST.name]
        name = (metadata["namespace"], schedules[0] if schedules else metadata["name"])
        if ended_s(status) >= ended_s(ended.get(name, {})):
            ended[name] = status
    return ended
