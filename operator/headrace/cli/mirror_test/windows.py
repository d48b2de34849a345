"""A mirror test on this machine whose load has no end: window after window, each with a verdict."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.api import LatencyMs, MirrorTest, MirrorTestCounts, Verdict
from headrace.errors import GaveUp, HeadraceError, InvalidSpec
from headrace.mirror_test import Result, documents, window_of
from headrace.telemetry import TEST_METRICS, make_registry, test_samples

_WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED)
_RETRY_S = 10.0
"""After a window that could not be judged: what is away then may be back."""

OnVerdict = Callable[[Result], None]


def run_windows(
    test: MirrorTest,
    verify: Callable[[MirrorTest, Path], Result],
    folder: Path,
    on_verdict: OnVerdict,
    retry_s: float = _RETRY_S,
) -> Verdict:
    """Judge windows until somebody interrupts, or ends the load of one; the worst verdict.

    Each window has a folder below ``folder``; of those that ended, so many stay as the history
    limits say. A window without a verdict counts as Inconclusive, and the next one begins. Raises
    what the first one raises, and ``GaveUp`` when none has ended.
    """
    window, found = window_of(test), Counter[Verdict]()
    kept: dict[bool, list[Path]] = {True: [], False: []}
    spec = test.spec
    limits = {True: spec.successful_tests_history_limit, False: spec.failed_tests_history_limit}
    try:
        while True:
            at = folder / f"{datetime.now(UTC):%y%m%d-%H%M%S}-{found.total() + 1}"
            verdict = Verdict.INCONCLUSIVE
            try:
                result = verify(window, at)
                verdict = result.verdict
                on_verdict(result)
            except HeadraceError as error:
                if not found:
                    raise
                click.echo(f"Inconclusive: {error}")
                time.sleep(retry_s)
            found[verdict] += 1
            click.echo(f"windows: {_words(found)}")
            passed = verdict is Verdict.PASSED
            kept[passed].append(at)
            while len(kept[passed]) > limits[passed]:
                shutil.rmtree(kept[passed].pop(0), ignore_errors=True)
            if (at / documents.END_LOAD).exists():
                break
    except KeyboardInterrupt:
        if not found:
            raise GaveUp("interrupted before the end of a window: there is no verdict") from None
    return next(verdict for verdict in _WORST_FIRST if found[verdict])


def _words(found: Counter[Verdict]) -> str:
    return ", ".join(f"{found[verdict]:,} {verdict}" for verdict in reversed(_WORST_FIRST))


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


def _as(kind: type[MirrorTestCounts] | type[LatencyMs], found: object) -> dict[str, int]:
    return {str(info.alias): getattr(found, name) for name, info in kind.model_fields.items()}


def serve_metrics(test: MirrorTest, port: int) -> OnVerdict:
    """Serve metrics from a thread; returns what takes the result of each window. Raises
    ``InvalidSpec`` when the port is taken."""
    latest, registry = _Latest((test.metadata.namespace, test.metadata.name)), make_registry()
    registry.register(latest)
    try:
        start_http_server(port, registry=registry)
    except OSError as error:
        raise InvalidSpec(
            f"cannot serve metrics on port {port} ({error.strerror}): choose another --metrics-port"
        ) from error
    return latest.take
