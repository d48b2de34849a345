"""Stages of ``headrace verify``, with scripted jobs in place of Spark's."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import ChaosAction, ChaosStep, MirrorTest, Rehearsal, Verdict
from headrace.api.labels import FLOW_LABEL
from headrace.cli.mirror_test import local_run
from headrace.control import control
from headrace.errors import GaveUp, InvalidSpec
from headrace.mirror_test import (
    Fault,
    Faults,
    LoadProgress,
    MirrorTestRun,
    Rehearsed,
    Result,
    documents,
)
from headrace.mirror_test.sequence import Stage

TEST = MirrorTest.model_validate(mirror_test_of_another("nightly", load={"messages": 100}))
FLOW = {FLOW_LABEL: "orders"}
OF_FLOW = TEST.model_copy(
    update={"metadata": TEST.metadata.model_copy(update={"annotations": FLOW})}
)
KILL = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)
READY = {"event": "ready", "missing": []}


def progress(acknowledged: int) -> dict[str, Any]:
    return {"event": "progress", "acknowledged": acknowledged}


class Folder:
    """Folder of the run, with the started jobs and their scripts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[Stage] = []
        self.jobs: dict[Stage, Job] = {}
        self.flags: dict[Stage, tuple[str, ...]] = {}
        self.events: dict[Stage, list[dict[str, Any]]] = {
            Stage.PROBE: [READY],
            Stage.PRODUCE: [progress(40), progress(60), progress(100)],
        }
        self.leaves = {documents.MANIFEST, documents.REPORT}
        self.units = {"task-0": "driver-1"}
        self.states: list[str] = []
        self.is_gone = False

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def leave(self, name: str, text: str) -> None:
        if name in self.leaves:
            (self.path / name).write_text(text)

    def start(self, stage: Stage, producers: int, path: Path, *arguments: str) -> "Job":
        assert path == self.path
        self.started.append(stage)
        self.flags[stage] = arguments
        self.jobs[stage] = Job(self, stage)
        return self.jobs[stage]

    def request(self, flow: str, command: str, **arguments: Any) -> dict[str, Any]:
        if command == "set-state":
            self.states.append(arguments["state"])
            if self.is_gone and arguments["state"] == "Running":
                raise InvalidSpec("flow orders is not running here")
            return {"changed": True}
        if command == "status":
            # Its recovery is seen only after the load has ended.
            driver = "driver-1" if self.jobs[Stage.PRODUCE].running else "driver-2"
            return {"units": [{"name": "task-0", "phase": "Running", "driverName": driver}]}
        return {"driver": "driver-1", "timeMs": 5_000, "units": ["task-0"]}


class Job:
    """Job that ends when its events are read, or, for the probe, when the manifest exists."""

    def __init__(self, folder: Folder, stage: Stage) -> None:
        self._folder, self._stage = folder, stage
        self._events = folder.events.get(stage, [])
        self.running, self.ended = True, False

    def events(self, wait_s: float) -> Iterator[dict[str, Any]]:
        if self._events:
            yield self._events.pop(0)
        elif self._stage is Stage.PRODUCE:
            self._folder.leave(documents.MANIFEST, "{}")
            self.running = False
        elif self._stage is Stage.VERIFY:
            verdict = Result(
                verdict=Verdict.PASSED,
                reasons=("all is well",),
                run="r1",
                test=TEST,
                judged_ms=1,
                versions={},
            )
            self._folder.leave(documents.REPORT, verdict.model_dump_json(by_alias=True))
            self.running = False
        elif self._folder.has(documents.MANIFEST):
            self.running = False

    def last_log_error(self) -> str:
        return f"{self._stage}: the end"

    def end(self) -> None:
        self.running, self.ended = False, True


class View:
    """View that records its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, what: str) -> None:
        self.lines.append(what)

    def note(self, sentence: str) -> None:
        self.lines.append(f"note: {sentence}")

    def fault(self, fault: Fault) -> None:
        self.lines.append(f"{fault.step.action} of {fault.driver}")

    def progress(self, progress: LoadProgress) -> None: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    folder = Folder(tmp_path / "report")
    monkeypatch.setattr(local_run, "SparkJob", folder.start)
    monkeypatch.setattr(control, "request", folder.request)
    return folder


def carry_out(folder: Folder, *steps: ChaosStep, test: MirrorTest = TEST) -> tuple[Result, View]:
    view: Any = View()
    return local_run.run_test(
        MirrorTestRun(name="r1", test=test), steps, folder.path, 60, view
    ), view


TITLES = [
    "Starting the probe",
    "Starting the load",
    "Waiting for the last message on the target",
    "Comparing the clusters",
]


def test_one_stage_after_the_other_and_the_verdict_is_the_reports(folder: Folder) -> None:
    result, view = carry_out(folder)
    assert result.verdict is Verdict.PASSED
    assert folder.started == [Stage.PROBE, Stage.PRODUCE, Stage.VERIFY]
    assert [line for line in view.lines if line != TITLES[2]] == TITLES[:2] + TITLES[3:]
    assert all(job.ended for job in folder.jobs.values())


def test_spark_starts_for_the_comparison_when_all_is_sent(folder: Folder) -> None:
    """The comparison begins when the load and the probe have ended."""
    begun: list[bool] = []
    start = folder.start

    def starting(stage: Stage, *others: Any) -> Job:
        if stage is Stage.VERIFY:
            begun.append(folder.has(documents.BEGIN))
            assert not folder.events[Stage.PRODUCE]
        return start(stage, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_run, "SparkJob", starting)
        carry_out(folder)
    assert begun == [False]
    assert folder.flags[Stage.VERIFY][-2:] == ("--begin", str(folder.path / documents.BEGIN))
    assert folder.has(documents.BEGIN)


def test_a_comparison_that_ended_before_it_began_is_started_again(folder: Folder) -> None:
    start = folder.start

    def starting(stage: Stage, *others: Any) -> Job:
        job = start(stage, *others)
        job.running = "--begin" not in folder.flags[stage]
        return job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_run, "SparkJob", starting)
        result, _ = carry_out(folder)
    assert result.verdict is Verdict.PASSED
    assert folder.started[-2:] == [Stage.VERIFY, Stage.VERIFY]
    assert "--begin" not in folder.flags[Stage.VERIFY]


def test_what_jobs_measure_is_passed_on_to_who_wants_it(folder: Folder) -> None:
    metrics = {"event": "metrics", "text": "messages_produced 7\n"}
    folder.events[Stage.PRODUCE].insert(1, metrics)
    view: Any = View()
    found: list[tuple[Stage, str]] = []
    run = MirrorTestRun(name="r1", test=TEST)
    local_run.run_test(
        run, (), folder.path, 60, view, on_metrics=lambda *metrics: found.append(metrics)
    )
    assert found == [(Stage.PRODUCE, "messages_produced 7\n")]
    asked = {stage for stage, flags in folder.flags.items() if "--metrics-events" in flags}
    assert asked == {Stage.PROBE, Stage.PRODUCE}


def test_jobs_do_not_say_what_they_measure_unless_somebody_wants_it(folder: Folder) -> None:
    carry_out(folder)
    assert not any("--metrics-events" in flags for flags in folder.flags.values())


def test_the_comparison_starts_with_the_outcome_of_the_last_fault(folder: Folder) -> None:
    _, view = carry_out(folder, KILL, test=OF_FLOW)
    (fault,) = Faults.model_validate_json((folder.path / documents.FAULTS).read_text()).faults
    assert (fault.driver, fault.percent, fault.error) == ("driver-1", 60, None)
    assert fault.recovery_seconds is not None
    assert "KillDriver of driver-1" in view.lines


def test_a_load_without_a_manifest_is_compared_at_once(folder: Folder) -> None:
    folder.leaves.remove(documents.MANIFEST)
    _, view = carry_out(folder)
    assert view.lines == [*TITLES[:2], "note: produce: the end", TITLES[3]]
    assert folder.jobs[Stage.PROBE].ended


def test_a_test_goes_on_without_its_probe(folder: Folder) -> None:
    folder.events[Stage.PROBE] = []
    folder.path.mkdir()
    (folder.path / documents.REPORT).write_text("of an earlier run")
    probe = folder.start

    def start(stage: Stage, *others: Any) -> Job:
        job = probe(stage, *others)
        job.running = stage is not Stage.PROBE
        return job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_run, "SparkJob", start)
        result, view = carry_out(folder)
    assert result.verdict is Verdict.PASSED
    assert view.lines[1] == "note: latency will not be measured: probe: the end"


def test_a_verifier_without_a_report_gives_no_verdict(folder: Folder) -> None:
    folder.leaves.remove(documents.REPORT)
    with pytest.raises(GaveUp, match="there is no verdict: verify: the end"):
        carry_out(folder)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_flow_that_is_still_paused_in_the_end_is_resumed(folder: Folder, is_gone: bool) -> None:
    pause = ChaosStep(action=ChaosAction.PAUSE_FLOW, at_percent=50, seconds=3600)
    quick = OF_FLOW.model_copy(
        update={"spec": OF_FLOW.spec.model_copy(update={"settle_seconds": -3600})}
    )
    folder.is_gone = is_gone
    result, view = carry_out(folder, pause, test=quick)
    assert result.verdict is Verdict.PASSED
    assert folder.states == ["Paused", "Running"]
    note = "note: the flow is still paused: flow orders is not running here"
    assert (note in view.lines) is is_gone


def test_a_fail_over_is_rehearsed_between_the_load_and_the_comparison(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    class FailOver:
        def __init__(self, run: MirrorTestRun, groups: Sequence[str]) -> None:
            done.append(f"{len(groups)} groups")

        def start(self) -> None:
            assert Stage.PRODUCE not in folder.started
            done.append("reads")

        def progress(self, percent: float) -> None:
            done.append(f"at {percent:.0f} %")

        def fail_over(self) -> Rehearsed:
            assert not folder.jobs[Stage.PRODUCE].running
            assert Stage.VERIFY not in folder.started
            done.append("failed over")
            return Rehearsed(error="refused")

        def end(self) -> str:
            done.append("undone")
            return "away"

    monkeypatch.setattr(local_run, "FailOver", FailOver)
    view: Any = View()
    run, asked = MirrorTestRun(name="r1", test=OF_FLOW), Rehearsal(groups=3)
    local_run.run_test(run, (), folder.path, 60, view, rehearsal=asked)
    assert list(dict.fromkeys(done)) == [
        *("3 groups", "reads", "at 40 %", "at 60 %", "at 100 %", "failed over", "undone")
    ]
    assert "note: the fail-over could not be undone: away" in view.lines
    found = Rehearsed.model_validate_json((folder.path / documents.REHEARSAL).read_text())
    assert (found.error, found.not_undone) == ("refused", "away")
