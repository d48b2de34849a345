"""Metrics of flows and mirror tests, computed from their statuses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from headrace import __version__
from headrace.api import CONDITIONS, Verdict


@dataclass(frozen=True)
class Described:
    """Metric with its documentation. Names follow the conventions of Prometheus."""

    name: str
    type: str
    """``gauge``, ``counter`` or ``histogram``."""
    help: str
    labels: tuple[str, ...] = ()

    def family(self, *more_labels: str) -> GaugeMetricFamily | CounterMetricFamily:
        """Return a metric family for a collector, which adds the samples at each scrape."""
        family = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return family(self.name, self.help, labels=(*self.labels, *more_labels))


BUILD_INFO = Described(
    "headrace_build_info", "gauge", "1, with the version as a label.", ("version",)
)


def make_registry(*, process: bool = True) -> CollectorRegistry:
    """Return a registry with the version and, if ``process``, with CPU, memory and open files."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    if process:
        ProcessCollector(registry=registry)
    build = Gauge(BUILD_INFO.name, BUILD_INFO.help, BUILD_INFO.labels, registry=registry)
    build.labels(__version__).set(1)
    return registry


Object = Mapping[str, Any]
Sample = tuple[Described, tuple[str, ...], float]
"""Metric, label values, and value."""

_FLOW = ("namespace", "flow")

FLOW_CONDITION = Described(
    "headrace_flow_condition",
    "gauge",
    "1 while the condition of the flow is True, else 0.",
    (*_FLOW, "condition"),
)
FLOW_TASKS = Described(
    "headrace_flow_tasks",
    "gauge",
    "Tasks of the flow by phase, without connectors. Other: starting, stopping, or on a lost "
    "driver.",
    (*_FLOW, "phase"),
)
DRIVERS_READY = Described("headrace_flow_drivers_ready", "gauge", "Drivers that are alive.", _FLOW)
DRIVERS_DESIRED = Described(
    "headrace_flow_drivers_desired",
    "gauge",
    "Drivers that the spec requests. For a stopped flow 0, or 1 while it watches its source.",
    _FLOW,
)
FLOW_LAG_RECORDS = Described(
    "headrace_flow_lag_records",
    "gauge",
    "Records on the source that the target has not acknowledged, in the coarse steps of the "
    "status. The drivers' metrics are exact. Absent while the lag is unknown.",
    _FLOW,
)
FLOW_LAG_S = Described(
    "headrace_flow_lag_seconds",
    "gauge",
    "Age of the oldest record of the lag, in coarse steps.",
    _FLOW,
)
SOURCE_WRITTEN = Described(
    "headrace_flow_source_written_offsets",
    "gauge",
    "Offsets that a partition of the source has gained after a planned fail-over, while the watch "
    "runs. Absent for a partition without any.",
    (*_FLOW, "topic", "partition"),
)
FLOW_METRICS: Sequence[Described] = (
    FLOW_CONDITION,
    FLOW_TASKS,
    DRIVERS_READY,
    DRIVERS_DESIRED,
    FLOW_LAG_RECORDS,
    FLOW_LAG_S,
    SOURCE_WRITTEN,
)

_PHASES = ("Running", "Restoring", "Paused", "Failed")


def flow_samples(flow: Object) -> Iterator[Sample]:
    """Yield the samples of a ReplicationFlow object from the API server."""
    name = (flow["metadata"]["namespace"], flow["metadata"]["name"])
    status = flow.get("status") or {}
    conditions = status.get("conditions") or ()
    true = {one["type"] for one in conditions if one["status"] == "True"}
    for condition in CONDITIONS:
        yield FLOW_CONDITION, (*name, condition.type.value), condition.type in true
    if (tasks := status.get("tasks")) is not None:
        phases = {phase: tasks.get(phase.lower(), 0) for phase in _PHASES}
        # ``total`` does not include connectors, but ``failed`` does.
        phases["Other"] = max(tasks.get("total", 0) - sum(phases.values()), 0)
        for phase, count in phases.items():
            yield FLOW_TASKS, (*name, phase), count
    yield DRIVERS_READY, name, status.get("readyReplicas", 0)
    yield DRIVERS_DESIRED, name, status.get("desiredReplicas", 0)
    if (lag := status.get("lag")) is not None:
        yield FLOW_LAG_RECORDS, name, lag.get("records", 0)
        yield FLOW_LAG_S, name, lag.get("seconds", 0)
    for one in status.get("sourceWrites") or ():
        yield SOURCE_WRITTEN, (*name, one["topic"], str(one["partition"])), one["offsets"]


_TEST = ("namespace", "test")
_OF_TEST = (
    "for a finished MirrorTest. Of the runs of a "
    "schedule, and the windows of an endless load, the last one counts."
)

TEST_VERDICT = Described(
    "headrace_mirror_test_verdict",
    "gauge",
    f"1 for the verdict (Passed, Failed, Inconclusive), 0 for the others, {_OF_TEST}",
    (*_TEST, "verdict"),
)
TEST_MESSAGES = Described(
    "headrace_mirror_test_messages",
    "gauge",
    f"Messages by outcome, {_OF_TEST}",
    (*_TEST, "outcome"),
)
TEST_LATENCY = Described(
    "headrace_mirror_test_latency_seconds",
    "gauge",
    f"Quantiles of the mirror's latency (quantile 1: the highest), {_OF_TEST}",
    (*_TEST, "quantile"),
)
TEST_ENDED = Described(
    "headrace_mirror_test_completion_timestamp_seconds",
    "gauge",
    f"Unix time of the end, {_OF_TEST}",
    _TEST,
)
TEST_METRICS: Sequence[Described] = (TEST_VERDICT, TEST_MESSAGES, TEST_LATENCY, TEST_ENDED)

_OUTCOMES = ("acknowledged", "missing", "duplicated", "reordered", "corrupted", "alien")
_QUANTILES = {"0.5": "p50", "0.99": "p99", "0.999": "p999", "1": "max"}


def test_samples(name: tuple[str, str], status: Object) -> Iterator[Sample]:
    """Yield the samples of a finished MirrorTest."""
    for verdict in Verdict:
        yield TEST_VERDICT, (*name, verdict.value), status["verdict"] == verdict
    if (counts := status.get("counts")) is not None:
        for outcome in _OUTCOMES:
            yield TEST_MESSAGES, (*name, outcome), counts.get(outcome, 0)
        if (unequal := counts.get("unequalOffsets")) is not None:
            yield TEST_MESSAGES, (*name, "unequalOffsets"), unequal
    if (latency_ms := status.get("latencyMs")) is not None:
        for quantile, field in _QUANTILES.items():
            yield TEST_LATENCY, (*name, quantile), latency_ms[field] / 1000
    if at_s := ended_s(status):
        yield TEST_ENDED, name, at_s


def ended_s(status: Object) -> float:
    """Return the end of a test in Unix time, or 0 if it has not ended."""
    ended: str | None = status.get("completionTime")
    return datetime.fromisoformat(ended).timestamp() if ended else 0.0
