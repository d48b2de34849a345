"""What ``headrace verify`` serves while it works: the metrics of its jobs, and those of the window
that ended last."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.api import LatencyMs, MirrorTest, MirrorTestCounts
from headrace.mirror_test import Result, Stage
from headrace.telemetry import TEST_METRICS, make_registry, test_samples


class LiveMetrics:
    """Of one test; read from the thread that serves them."""

    def __init__(self, test: MirrorTest) -> None:
        self._jobs: dict[Stage, str] = {}
        self._latest = _Latest((test.metadata.namespace, test.metadata.name))
        self._registry = make_registry()
        if test.spec.load.is_endless:
            self._registry.register(self._latest)

    def take(self, stage: Stage, text: str) -> None:
        """What a job reports, instead of what it reported before. It stays when the job ends."""
        self._jobs = self._jobs | {stage: text}

    def window_ended(self, result: Result) -> None:
        """The result of a window."""
        self._latest.take(result)

    def text(self) -> str:
        """All of them, in Prometheus' format."""
        return "".join((*self._jobs.values(), generate_latest(self._registry).decode()))


class _Latest(Collector):
    """The metrics of the window that ended last, as an operator has them."""

    def __init__(self, name: tuple[str, str]) -> None:
        self._name = name
        self._status: dict[str, Any] | None = None

    def take(self, result: Result) -> None:
        """The result of a window."""
        counts, latency = result.counts, result.latency_ms
        self._status = {
            "verdict": result.verdict,
            "counts": counts and _as(MirrorTestCounts, counts),
            "latencyMs": latency and _as(LatencyMs, latency),
            "completionTime": datetime.fromtimestamp(result.judged_ms / 1000, UTC).isoformat(),
        }

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """See ``Collector``."""
        families = {metric: metric.family() for metric in TEST_METRICS}
        if (status := self._status) is not None:
            for metric, labels, value in test_samples(self._name, status):
                families[metric].add_metric(labels, value)
        yield from families.values()


def _as(kind: type[MirrorTestCounts] | type[LatencyMs], found: object) -> dict[str, int | None]:
    return {str(info.alias): getattr(found, name) for name, info in kind.model_fields.items()}
