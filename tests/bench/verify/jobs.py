"""The timed jobs, each a process of its own, and their memory."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from bench.verify.clusters import job

from headrace.api import Verdict
from headrace.cli.mirror_test.spark_job import environment
from headrace.errors import GaveUp
from headrace.mirror_test import MirrorTestRun, Result, Stage, documents, local_slots

_POLL_S = 0.1
_BEFORE = ("sending the load", "from the last message until the comparison began")
"""Phases of a report that are not the comparison's."""


@dataclass(frozen=True)
class Job:
    """The figures of one job; Spark's start is not in ``seconds``."""

    records: int
    """Records of each side."""
    seconds: float
    peak_bytes: int
    """Peak memory of its JVM and its Python processes together."""
    phases: dict[str, float]


def judged(folder: Path) -> Job:
    """Compare as ``headrace verify`` does; raises ``GaveUp`` when the verdict is not Passed."""
    verifying = job(Stage.VERIFY, folder)
    peak = _peak(lambda: verifying.running)
    words = verifying.last_log_error()
    verifying.end()
    result = documents.read(folder / documents.REPORT, Result)
    if result is None or result.verdict is not Verdict.PASSED or result.counts is None:
        raise GaveUp(f"{result.verdict}: {result.reasons}" if result else words)
    phases = {phase.name: phase.seconds for phase in result.phases if phase.name not in _BEFORE}
    spent_s = sum(s for name, s in phases.items() if name != "starting Spark")
    return Job(result.counts.acknowledged, spent_s, peak, phases)


def spark_figures(verb: str, run: MirrorTestRun, folder: Path) -> Job:
    """Return the figures of ``bench.verify.spark``, with the comparison's memory and cores."""
    out = folder / f"{verb}.json"
    command = [sys.executable, "-m", "bench.verify.spark", verb, str(folder), str(out)]
    slots = local_slots(Stage.VERIFY, 1)
    with (folder / f"{verb}.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment(Stage.VERIFY, slots, folder), stdout=log, stderr=log
        )
        peak = _peak(lambda: process.poll() is None)
    if process.returncode:
        raise GaveUp((folder / f"{verb}.log").read_text(errors="replace")[-2_000:])
    found: dict[str, Any] = json.loads(out.read_text())
    return Job(found["records"], found["seconds"], peak, found["phases"])


def _peak(running: Callable[[], bool]) -> int:
    """Return the peak memory of our child processes together while a job runs.

    Processes that run anyway are left out.
    """
    us = psutil.Process()
    peak = 0
    while running():
        peak = max(peak, sum(map(_resident, _of_spark(us))))
        time.sleep(_POLL_S)
    return peak


def _of_spark(us: psutil.Process) -> list[psutil.Process]:
    """Children that are no brokers, which the sandbox owns."""
    found = []
    for child in us.children(recursive=True):
        try:
            if "kafka.Kafka" not in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue  # it has ended
    return found


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
