"""Runs the stages of a mirror test on this machine."""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import ValidationError

from headrace.api import ChaosStep, Rehearsal
from headrace.cli.mirror_test.local_faults import LocalFaults
from headrace.cli.mirror_test.progress import VerifyProgress
from headrace.cli.mirror_test.rehearsal import FailOver
from headrace.cli.mirror_test.spark_job import Event, SparkJob
from headrace.errors import GaveUp
from headrace.mirror_test import (
    Faults,
    LoadClock,
    MirrorTestRun,
    Result,
    Stage,
    deadline_s,
    documents,
    group_names,
)
from headrace.mirror_test.sequence import Activity, RunState, StageState, advance

_POLL_S = 0.1
_SPARK_START_S = 60.0  # about 8 s on an idle machine

OnMetrics = Callable[[Stage, str], None]
"""Function that receives the metrics of a stage as text."""


class LocalStages:
    """Stages of one run, as processes on this machine."""

    def __init__(
        self,
        run: MirrorTestRun,
        steps: Sequence[ChaosStep],
        folder: Path,
        timeout_s: float,
        view: VerifyProgress,
        *,
        rehearsal: Rehearsal | None,
        on_metrics: OnMetrics | None,
    ) -> None:
        self._run, self._folder, self._view = run, folder, view
        self._on_metrics = on_metrics
        self._has_chaos = bool(steps)
        self._faults = LocalFaults(run, steps)
        self._chaos = self._faults.chaos
        groups = group_names(run.name, rehearsal) if rehearsal else []
        self._rehearsal = FailOver(run, groups) if groups else None
        self._clock = LoadClock(run.test.spec.load)
        self._topics_s = max(timeout_s, run.test.spec.settle_seconds)
        self._jobs: dict[Stage, SparkJob] = {}
        self._early: SparkJob | None = None
        """Comparison whose Spark has started early, and which waits for the file ``BEGIN``."""
        self._started_s: dict[Stage, float] = {}
        self._ended_s: dict[Stage, float] = {}
        self._probe_is_ready = False

    def observe(self) -> RunState:
        """Return the state from which ``advance`` decides."""
        now_s = time.monotonic()
        for stage, job in self._jobs.items():
            if stage not in self._ended_s and not job.running:
                self._ended_s[stage] = now_s
                if stage is Stage.PRODUCE:
                    self._end_chaos()
        if Stage.PRODUCE in self._ended_s and not self._chaos.recovering:
            self._ended_s.setdefault(Stage.CHAOS, now_s)
        return RunState(
            stages={stage: self._state(stage, now_s) for stage in self._started_s},
            settle_s=self._run.test.spec.settle_seconds,
            probe_start_s=self._topics_s + _SPARK_START_S,
            chaos_start_s=0.0,
            has_chaos=self._has_chaos,
            has_load=self._run.test.spec.audit is None,
            has_manifest=self._has_manifest,
            reported=Stage.VERIFY in self._ended_s and (self._folder / documents.REPORT).exists(),
        )

    def start(self, stage: Stage) -> None:
        """Start a stage. Before the comparison, end the probe and rehearse the fail-over."""
        if stage is Stage.PRODUCE and not self._probe_is_ready:
            # A test continues without its probe. Only the latency is then unknown.
            self._view.note(f"latency will not be measured: {self.last_log_error(Stage.PROBE)}")
        if stage is Stage.PRODUCE and self._rehearsal:
            self._rehearsal.start()
        if stage is Stage.VERIFY:
            if Stage.PROBE in self._jobs:
                self._jobs[Stage.PROBE].end()
            self._fail_over()
            faults = Faults(faults=self._chaos.faults)
            documents.write(self._folder / documents.FAULTS, faults)
        self._started_s[stage] = time.monotonic()
        if stage is Stage.VERIFY and self._early and self._early.running:
            (self._folder / documents.BEGIN).touch()
            self._jobs[stage] = self._early
        elif stage is not Stage.CHAOS:
            self._jobs[stage] = self._spark_job(stage)

    def poll(self) -> None:
        """Process events of the jobs, and inject the faults that are due. Waits up to 0.1 s."""
        for stage, job in self._jobs.items():
            for event in job.events(_POLL_S / len(self._jobs)):
                self._receive(stage, event)
        if Stage.PRODUCE in self._jobs and Stage.CHAOS not in self._ended_s:
            self._advance_chaos()
        if self._early is None and self._may_start_early:
            begin = self._folder / documents.BEGIN
            self._early = self._spark_job(Stage.VERIFY, "--begin", str(begin))
        if self._age_s(Stage.VERIFY) > deadline_s(self._run.test, Stage.VERIFY):
            self._jobs[Stage.VERIFY].end()

    def last_log_error(self, stage: Stage) -> str:
        """Return the last message of a stage, with the path of its log."""
        return self._jobs[stage].last_log_error()

    def end(self) -> None:
        """End all processes, and undo the faults and the fail-over."""
        for job in filter(None, {*self._jobs.values(), self._early}):
            job.end()
        self._end_rehearsal()
        if why := self._faults.restore():
            self._view.note(f"the flow is still paused: {why}")

    @property
    def _has_manifest(self) -> bool:
        return (self._folder / documents.MANIFEST).exists()

    @property
    def _may_start_early(self) -> bool:
        """Return True if the comparison's Spark may start early.

        It must not disturb the load's latency, recoveries and a fail-over.
        """
        progress = self._clock.progress()
        if self._run.test.spec.audit is not None:
            return False
        sent = Stage.PRODUCE in self._ended_s or (progress and progress.percent >= 100)
        open_ones = self._rehearsal or self._chaos.recovering or Stage.VERIFY in self._jobs
        return bool(sent) and not open_ones

    def _state(self, stage: Stage, now_s: float) -> StageState:
        ended_s = self._ended_s.get(stage)
        return StageState(
            age_s=self._age_s(stage),
            ready=stage is Stage.CHAOS or (stage is Stage.PROBE and self._probe_is_ready),
            ended_s=None if ended_s is None else now_s - ended_s,
        )

    def _age_s(self, stage: Stage) -> float:
        return time.monotonic() - self._started_s.get(stage, time.monotonic())

    def _receive(self, stage: Stage, event: Event) -> None:
        if (stage, event["event"]) == (Stage.PROBE, "ready"):
            self._probe_is_ready = True
            if event["missing"]:
                self._view.note(f"topics missing on the target: {', '.join(event['missing'])}")
        elif (stage, event["event"]) == (Stage.PRODUCE, "progress"):
            self._clock.acknowledged = event["acknowledged"]
        elif event["event"] == "metrics" and self._on_metrics:
            self._on_metrics(stage, event["text"])

    def _advance_chaos(self) -> None:
        if (progress := self._clock.progress()) is None:
            return
        if fault := self._chaos.advance(progress, time.monotonic()):
            self._view.fault(fault)
        self._view.progress(progress)
        if self._rehearsal:
            self._rehearsal.progress(progress.percent)

    def _fail_over(self) -> None:
        if self._rehearsal:
            self._view.stage("Failing over, and resuming on the target")
            found = self._rehearsal.fail_over()
            outcome = found.model_copy(update={"not_undone": self._end_rehearsal()})
            documents.write(self._folder / documents.REHEARSAL, outcome)

    def _end_rehearsal(self) -> str | None:
        if self._rehearsal and (why := self._rehearsal.end()):
            self._view.note(f"the fail-over could not be undone: {why}")
            return why
        return None

    def _end_chaos(self) -> None:
        """End the chaos after the load: no further step will be due."""
        self._chaos.end()
        if not self._has_manifest:
            self._view.note(self.last_log_error(Stage.PRODUCE))

    def _spark_job(self, stage: Stage, *flags: str) -> SparkJob:
        secrets = self._run.secrets
        of_probe = ("--timeout", str(self._topics_s))
        measures = self._on_metrics and stage is not Stage.VERIFY
        return SparkJob(
            stage,
            self._run.test.spec.load.producers,
            self._folder,
            *("--test", str(self._folder / documents.TEST)),
            *("--run", self._run.name, "--out", str(self._folder)),
            *(("--secrets", str(secrets)) if secrets else ()),
            *(of_probe if stage is Stage.PROBE else ()),
            *(("--metrics-events",) if measures else ()),
            *flags,
        )


_DOCUMENTS = (
    *(documents.TEST, documents.FAULTS, documents.MANIFEST),
    *(documents.MEASURED, documents.REHEARSAL, documents.REPORT),
    *(documents.PAGE, documents.END_LOAD, documents.BEGIN),
    *("probe.log", "produce.log", "verify.log"),
)
_TITLES = {
    Activity.STARTING_PROBE: "Starting the probe",
    Activity.SENDING: "Starting the load",
    Activity.AWAITING_ARRIVALS: "Waiting for the last message on the target",
    Activity.COMPARING: "Comparing the clusters",
}


def run_test(
    run: MirrorTestRun,
    steps: Sequence[ChaosStep],
    folder: Path,
    timeout_s: float,
    view: VerifyProgress,
    *,
    rehearsal: Rehearsal | None = None,
    on_metrics: OnMetrics | None = None,
) -> Result:
    """Run a resolved test, and return the result in ``report.json``.

    ``on_metrics`` receives the metrics of the probe and the load twice a second. Raise ``GaveUp``
    if there is no report at the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in _DOCUMENTS:
        (folder / name).unlink(missing_ok=True)  # from an earlier run with the same folder
    (folder / documents.TEST).write_text(
        run.test.model_dump_json(by_alias=True, exclude_none=True, indent=1)
    )
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder / "scratch", ignore_errors=True)
        stages = LocalStages(
            run, steps, folder, timeout_s, view, rehearsal=rehearsal, on_metrics=on_metrics
        )
        ends.callback(stages.end)
        shown = None
        while not (next_one := advance(stages.observe())).activity.is_end:
            if next_one.start is not None:
                stages.start(next_one.start)
            if next_one.activity is not shown and next_one.activity in _TITLES:
                view.stage(_TITLES[next_one.activity])
            shown = next_one.activity
            stages.poll()
    return _result(folder, run, stages.last_log_error(Stage.VERIFY))


def _result(folder: Path, run: MirrorTestRun, last_log_error: str) -> Result:
    """Return the result from the report, which is the only source of the verdict."""
    path = folder / documents.REPORT
    try:
        result = Result.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise GaveUp(f"there is no verdict: {last_log_error}") from error
    if result.run != run.name:
        raise GaveUp(f"there is no verdict: {path} belongs to another run, {result.run}")
    return result
