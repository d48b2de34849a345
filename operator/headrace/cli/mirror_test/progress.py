"""Progress and summary of a mirror test, on a terminal and as metrics."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace import logs
from headrace.api import LatencyMs, MirrorTest, MirrorTestCounts
from headrace.control import control
from headrace.errors import HeadraceError
from headrace.mirror_test import Fault, LoadProgress, MirrorTestRun, Result, Stage
from headrace.telemetry import TEST_METRICS, make_registry, test_samples

log = logs.get_logger(__name__)

_PLAIN_INTERVAL_S = 5.0
_LAG_INTERVAL_S = 1.0


class VerifyProgress:
    """Prints stages, notes and the progress of the load to standard error."""

    def __init__(self, run: MirrorTestRun) -> None:
        self._run = run
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("load", total=100, numbers="", visible=False)
        self._printed_s = 0.0
        self._lag, self._lag_s = "", 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def stage(self, what: str) -> None:
        """Print the name of the next stage."""
        self._bar.update(self._task, visible=False)
        self._say(f"{what} ...")

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._say(f"note: {sentence}")

    def fault(self, fault: Fault) -> None:
        """Print that a chaos step was done, or failed."""
        if fault.at_ms is None:
            self.note(f"{fault.step.action} was not done: {fault.error}")
        else:
            affects = f": {fault.driver}" if fault.driver else ""
            units = f" with {', '.join(fault.units)}" if fault.units else ""
            self._say(f"{fault.step.action} at {fault.percent:.0f} % of the load{affects}{units}")

    def progress(self, progress: LoadProgress) -> None:
        """Show the progress of the load. May be called at any rate."""
        now = time.monotonic()
        numbers = f"{progress.acknowledged:,} messages acknowledged"
        if progress.elapsed_s > 1:
            numbers += f", {progress.acknowledged / progress.elapsed_s:,.0f}/s"
        numbers += self._behind()
        if self._console.is_terminal:
            self._bar.update(self._task, completed=progress.percent, numbers=numbers, visible=True)
        elif now - self._printed_s >= _PLAIN_INTERVAL_S:
            self._printed_s = now
            self._say(f"{progress.percent:3.0f} %  {numbers}")

    def _behind(self) -> str:
        """Return a text about the flow's lag, or an empty text if the test has no flow."""
        now = time.monotonic()
        if self._run.flow and now - self._lag_s >= _LAG_INTERVAL_S:
            self._lag_s = now
            try:
                lag = control.request(self._run.flow, "status").get("lag", {})
                self._lag = f", mirror {lag.get('records', 0):,} behind"
            except HeadraceError:
                self._lag = ", mirror does not respond"
        return self._lag

    def _say(self, line: str) -> None:
        if logs.is_json() and not self._console.is_terminal:  # programs parse the log
            log.info(line, test=self._run.test.metadata.name)
            return
        self._console.print(line, soft_wrap=True, markup=False)


class LiveMetrics:
    """Metrics of one test. The thread that serves them reads them."""

    def __init__(self, test: MirrorTest) -> None:
        self._jobs: dict[Stage, str] = {}
        self._latest = _Latest((test.metadata.namespace, test.metadata.name))
        self._registry = make_registry()
        if test.spec.load.is_endless:
            self._registry.register(self._latest)

    def take(self, stage: Stage, text: str) -> None:
        """Replace the metrics of a stage. They are kept when the stage ends."""
        self._jobs = self._jobs | {stage: text}

    def window_ended(self, result: Result) -> None:
        self._latest.take(result)

    def text(self) -> str:
        """Return all metrics in Prometheus format."""
        return "".join((*self._jobs.values(), generate_latest(self._registry).decode()))


class _Latest(Collector):
    """Metrics of the last ended window, with the same names as the operator's."""

    def __init__(self, name: tuple[str, str]) -> None:
        self._name = name
        self._status: dict[str, Any] | None = None

    def take(self, result: Result) -> None:
        """Record the result of a window."""
        counts, latency = result.counts, result.latency_ms
        self._status = {
            "verdict": result.verdict,
            "counts": counts and _as(MirrorTestCounts, counts),
            "latencyMs": latency and _as(LatencyMs, latency),
            "completionTime": datetime.fromtimestamp(result.judged_ms / 1000, UTC).isoformat(),
        }

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        families = {metric: metric.family() for metric in TEST_METRICS}
        if (status := self._status) is not None:
            for metric, labels, value in test_samples(self._name, status):
                families[metric].add_metric(labels, value)
        yield from families.values()


def _as(kind: type[MirrorTestCounts] | type[LatencyMs], found: object) -> dict[str, int | None]:
    return {str(info.alias): getattr(found, name) for name, info in kind.model_fields.items()}


def summary(result: Result, page: Path) -> str:
    """Return a result in a few lines, verdict first. ``page`` is the path of the full report."""
    lines = [f"{result.verdict}: {result.reasons[0]}"]
    lines += [f"  {reason}" for reason in result.reasons[1:]]
    if counts := result.counts:
        what = "records" if result.test.spec.audit else "messages"
        unequal = counts.unequal_offsets
        lines.append(
            f"  {counts.acknowledged - counts.missing - counts.source_lost:,} of "
            f"{counts.acknowledged:,} {what} arrived; {counts.missing:,} missing, "
            f"{counts.duplicated:,} duplicated, {counts.reordered:,} reordered, "
            f"{counts.corrupted:,} corrupted, {counts.alien:,} alien"
            + (f", {unequal:,} at other offsets" if unequal is not None else "")
        )
    if latency := result.latency_ms:
        lines.append(
            f"  latency p50 {latency.p50:,} ms, p99 {latency.p99:,} ms, "
            f"p99.9 {latency.p999:,} ms, max {latency.max:,} ms"
        )
    for fault in result.faults:
        if fault.recovery_seconds is not None:
            what = f"{len(fault.units)} units of {fault.driver} ran again"
            if not fault.units:
                what = f"recovered{f' from the fault of {fault.driver}' if fault.driver else ''}"
            lines.append(
                f"  {fault.step.action} at {fault.percent:.0f} %: {what} after "
                f"{fault.recovery_seconds:.1f} s"
            )
    if result.rehearsal and result.rehearsal.seconds is not None:
        groups = result.rehearsal.groups
        lines.append(
            f"  fail-over in {result.rehearsal.seconds:.1f} s: {len(groups)} groups resumed at the "
            f"target, {sum(one.reread for one in groups):,} messages delivered again, "
            f"{sum(one.skipped for one in groups):,} skipped"
        )
    lines += [f"  note: {warning}" for warning in result.warnings]
    lines.append(f"  report: {page}")
    return "\n".join(lines)
