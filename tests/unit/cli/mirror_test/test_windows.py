"""A load without end on one machine: a verdict for each window, and a bounded number of folders."""

from pathlib import Path

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest, Verdict
from headrace.cli.mirror_test.progress import LiveMetrics
from headrace.cli.mirror_test.verify import run_windows
from headrace.errors import GaveUp, InvalidSpec, Retriable
from headrace.mirror_test import Counts, Result, Stage, documents

LOAD = {"durationSeconds": 0, "windowSeconds": 60, "topics": 2}
TEST = MirrorTest.model_validate(
    mirror_test_of_another("canary", load=LOAD, successfulTestsHistoryLimit=2)
)
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def result(verdict: Verdict) -> Result:
    return Result(
        verdict=verdict,
        reasons=("so it is",),
        run="r1",
        test=TEST,
        counts=Counts(acknowledged=600, missing=3),
        judged_ms=5_000,
        versions={},
    )


class Verify:
    """Windows that end as scripted. The window after the last is interrupted."""

    def __init__(self, *script: Verdict | BaseException) -> None:
        self._script = list(script)
        self.tests: list[MirrorTest] = []

    def __call__(self, test: MirrorTest, _: Path) -> Result:
        self.tests.append(test)
        what = self._script.pop(0) if self._script else KeyboardInterrupt()
        if isinstance(what, BaseException):
            raise what
        return result(what)


def judge(verify: Verify, folder: Path) -> Verdict:
    return run_windows(TEST, verify, folder, lambda _: None, retry_s=0)


def test_the_worst_window_is_the_verdict_and_each_sends_to_the_topics_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify = Verify(PASSED, FAILED, Retriable("west is away"), PASSED)
    assert judge(verify, tmp_path) is FAILED
    assert "windows: 2 Passed, 1 Inconclusive, 1 Failed" in capsys.readouterr().out
    for test in verify.tests:
        load = test.spec.load
        assert (load.names, load.topics) == (("canary-0", "canary-1"), None)
        assert (load.duration_seconds, load.messages) == (60, None)


def test_what_is_wrong_from_the_beginning_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="no flow"):
        judge(Verify(InvalidSpec("no flow")), tmp_path)
    with pytest.raises(GaveUp, match="before the end of a window"):
        judge(Verify(), tmp_path)


def test_a_load_that_somebody_ends_is_the_last_and_old_folders_go(tmp_path: Path) -> None:
    made: list[Path] = []

    def verify(_: MirrorTest, folder: Path) -> Result:
        folder.mkdir(parents=True)
        made.append(folder)
        if len(made) == 4:
            (folder / documents.END_LOAD).touch()
        return result(PASSED)

    assert run_windows(TEST, verify, tmp_path, lambda _: None) is PASSED
    assert sorted(path for path in tmp_path.iterdir()) == made[2:]


def test_the_metrics_are_those_of_the_jobs_and_of_the_window_that_ended_last() -> None:
    live = LiveMetrics(TEST)
    assert "headrace_mirror_test_verdict{" not in live.text()
    live.window_ended(result(PASSED))
    live.window_ended(result(FAILED))
    for produced in (1, 2):
        live.take(Stage.PRODUCE, f"messages_produced {produced}\n")
    live.take(Stage.PROBE, "messages_consumed 1\n")
    lines = live.text().splitlines()
    assert lines[:2] == ["messages_produced 2", "messages_consumed 1"]
    labels = 'namespace="default",test="canary"'
    missing = 'namespace="default",outcome="missing",test="canary"'
    assert {
        f'headrace_mirror_test_verdict{{{labels},verdict="Failed"}} 1.0',
        f'headrace_mirror_test_verdict{{{labels},verdict="Passed"}} 0.0',
        f"headrace_mirror_test_messages{{{missing}}} 3.0",
    } <= set(lines)
