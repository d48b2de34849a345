"""Timed Spark jobs of mirror tests, each a process of its own, with their CPU time and memory."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from headrace.api import MirrorTest, Verdict
from headrace.cli.mirror_test.spark_job import SparkJob, environment
from headrace.errors import GaveUp
from headrace.mirror_test import Result, Stage, documents, local_slots

_POLL_S = 0.1
START = "starting Spark"
_NOT_COMPARING = (
    START,
    "sending the load",
    "from the last message until the comparison began",
    "waiting until the target has caught up with the source",
)
"""Phases of a report that do not depend on the speed of the comparison."""


@dataclass(frozen=True)
class Job:
    """Figures of one job."""

    records: int
    """Records of each side."""
    seconds: float
    """Duration without Spark's start."""
    start_s: float
    """Duration of Spark's start."""
    cpu_s: float
    """CPU time of its JVM and its Python processes, with Spark's start."""
    peak_bytes: int
    """Peak memory of its JVM and its Python processes together."""
    phases: dict[str, float]


def write_test(test: MirrorTest, folder: Path) -> None:
    """Write the test for the jobs of a folder."""
    text = test.model_dump_json(by_alias=True, exclude_none=True)
    (folder / documents.TEST).write_text(text)


def mirror_test_job(stage: Stage, run: str, folder: Path, producers: int = 1) -> SparkJob:
    """Start a job of a run, as ``headrace verify`` does. Its test is in the folder."""
    arguments = ("--test", str(folder / documents.TEST), "--run", run, "--out", str(folder))
    return SparkJob(stage, producers, folder, *arguments)


def judged(run: str, folder: Path, expected: Verdict = Verdict.PASSED) -> tuple[Job, Result]:
    """Compare as ``headrace verify`` does. Raise ``GaveUp`` if the verdict is another one."""
    verifying = mirror_test_job(Stage.VERIFY, run, folder)
    cpu_s, peak_bytes = _used(lambda: verifying.running)
    words = verifying.last_log_error()
    verifying.end()
    result = documents.read(folder / documents.REPORT, Result)
    if result is None or result.verdict is not expected or result.counts is None:
        raise GaveUp(f"{result.verdict}: {result.reasons}" if result else words)
    spent = {phase.name: phase.seconds for phase in result.phases}
    phases = {name: s for name, s in spent.items() if name not in _NOT_COMPARING}
    return Job(
        records=result.counts.acknowledged,
        seconds=sum(phases.values()),
        start_s=spent[START],
        cpu_s=cpu_s,
        peak_bytes=peak_bytes,
        phases=phases,
    ), result


def spark_figures(module: str, folder: Path, *words: str) -> Job:
    """Run a module of the benchmarks with the memory and cores of a comparison.

    Its arguments are the folder, the file for its figures, and ``words``.
    """
    out, log_file = (folder / f"{module}.{suffix}" for suffix in ("json", "log"))
    command = [sys.executable, "-m", module, str(folder), str(out), *words]
    slots = local_slots(Stage.VERIFY, 1)
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, env=environment(Stage.VERIFY, slots, folder), stdout=log, stderr=log
        )
        cpu_s, peak_bytes = _used(lambda: process.poll() is None)
    if process.returncode:
        raise GaveUp(log_file.read_text(errors="replace")[-2_000:])
    found: dict[str, Any] = json.loads(out.read_text())
    start_s = found["phases"].pop(START)
    seconds = sum(found["phases"].values())
    return Job(found["records"], seconds, start_s, cpu_s, peak_bytes, found["phases"])


def write_figures(out: Path, records: int, phases: dict[str, float]) -> None:
    """Write the figures of a module for ``spark_figures``. Spark's start is one of the phases."""
    out.write_text(json.dumps({"records": records, "phases": phases}))


def _used(running: Callable[[], bool]) -> tuple[float, int]:
    """Return CPU seconds and the peak memory of our child processes together while a job runs.

    Brokers, which the sandbox owns, are not counted.
    """
    us = psutil.Process()
    cpu_s: dict[int, float] = {}
    peak_bytes = 0
    while running():
        resident_bytes = 0
        for child in us.children(recursive=True):
            try:
                if "kafka.Kafka" in child.cmdline():
                    continue
                times = child.cpu_times()
                cpu_s[child.pid] = times.user + times.system
                resident_bytes += child.memory_info().rss
            except psutil.Error:
                continue  # it has ended
        peak_bytes = max(peak_bytes, resident_bytes)
        time.sleep(_POLL_S)
    return sum(cpu_s.values()), peak_bytes
