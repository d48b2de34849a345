"""The stages of a mirror test on this machine: probe, load with chaos, comparison."""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from headrace.api import ChaosStep
from headrace.chaos import Chaos, LocalFlow
from headrace.cli.spark_job import SparkJob
from headrace.cli.verify_view import View
from headrace.control import control
from headrace.errors import GaveUp
from headrace.mirror_test import Fault, Faults, LoadClock, Result, Run, documents
from headrace.mirror_test.stages import Stage

_DOCUMENTS = (
    *(documents.TEST, documents.FAULTS, documents.MANIFEST),
    *(documents.MEASURED, documents.REPORT, documents.PAGE),
    *("probe.log", "produce.log", "verify.log"),
)
_LOOK_S = 0.1
_SPARK_START_S = 60.0  # eight seconds on a quiet machine
_END_S = 60.0  # a job's own clean-up after the time that it was given
_COMPARISON_S = 3_600.0  # a million records take one minute; what takes an hour is stuck


def run_test(
    run: Run, steps: Sequence[ChaosStep], folder: Path, timeout_s: float, view: View
) -> Result:
    """Carry out a resolved test and return what ``report.json`` says.

    Raises ``GaveUp`` when there is no such document in the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in _DOCUMENTS:
        (folder / name).unlink(missing_ok=True)  # of an earlier run into the same folder
    test_file = folder / documents.TEST
    test_file.write_text(run.test.model_dump_json(by_alias=True, exclude_none=True, indent=1))
    with ExitStack() as jobs:
        jobs.callback(shutil.rmtree, folder / "scratch", ignore_errors=True)

        def start(stage: Stage, *more: str) -> SparkJob:
            job = SparkJob(
                stage,
                run.test.spec.load.producers,
                folder,
                *("--test", str(test_file), "--run", run.name, "--out", str(folder)),
                *(("--secrets", str(run.secrets)) if run.secrets else ()),
                *more,
            )
            jobs.callback(job.end)
            return job

        view.stage("Starting the probe")
        wait_s = max(timeout_s, run.test.spec.settle_seconds)
        probe = start(Stage.PROBE, "--timeout", str(wait_s))
        _wait_until_ready(probe, wait_s + _SPARK_START_S, view)
        view.stage("Starting the load")
        load = start(Stage.PRODUCE)
        faults = _watch_load(run, load, steps, view)
        documents.write(folder / documents.FAULTS, Faults(faults=faults))
        if (folder / documents.MANIFEST).exists():
            view.stage("Waiting for the last message on the target")
            _wait_for_end(probe, run.test.spec.settle_seconds + _END_S)
        else:
            view.note(load.last_words())
        probe.end()
        view.stage("Comparing the clusters")
        verify = start(Stage.VERIFY)
        _wait_for_end(verify, run.test.spec.settle_seconds + _COMPARISON_S)
        verify.end()
    return _result(folder, run, verify)


def _wait_until_ready(probe: SparkJob, within_s: float, view: View) -> None:
    """A test goes on without its probe: only latency is then not known."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for event in probe.events(_LOOK_S):
            if event["event"] == "ready":
                if event["missing"]:
                    view.note(f"not on the target yet: {', '.join(event['missing'])}")
                return
        if not probe.running:
            break
    view.note(f"latency will not be measured: {probe.last_words()}")


def _watch_load(
    run: Run, load: SparkJob, steps: Sequence[ChaosStep], view: View
) -> tuple[Fault, ...]:
    """Follow the load to its end and break what is to be broken meanwhile."""
    flow = LocalFlow(partial(control.request, run.flow or ""))  # without a flow: no steps
    chaos = Chaos(steps, flow, run.test.spec.settle_seconds)
    clock = LoadClock(run.test.spec.load)
    while load.running or chaos.recovering:
        for event in load.events(_LOOK_S):
            if event["event"] == "progress":
                clock.acknowledged = event["acknowledged"]
        if not load.running:
            chaos.end()
        progress = clock.progress()
        if progress is None:
            continue
        if fault := chaos.look(progress, time.monotonic()):
            view.fault(fault)
        view.progress(progress)
    chaos.end()
    return chaos.faults


def _wait_for_end(job: SparkJob, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while job.running and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _result(folder: Path, run: Run, verify: SparkJob) -> Result:
    """What the document says; nothing else is believed."""
    path = folder / documents.REPORT
    try:
        result = Result.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise GaveUp(f"there is no verdict: {verify.last_words()}") from error
    if result.run != run.name:
        raise GaveUp(f"there is no verdict: {path} is of another run, {result.run}")
    return result
