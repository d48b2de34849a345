"""A load without end on one machine: a verdict for each window, and folders that do not pile up."""

import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest, Verdict
from headrace.cli.mirror_test.windows import run_windows, serve_metrics
from headrace.errors import GaveUp, InvalidSpec, Retriable
from headrace.mirror_test import Counts, Result, documents

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
    """Windows that end as the script says; the one behind the last is interrupted."""

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


def test_the_metrics_are_those_of_the_window_that_ended_last() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    take = serve_metrics(TEST, port)
    url = f"http://127.0.0.1:{port}/metrics"
    assert "headrace_mirror_test_verdict{" not in urlopen(url).read().decode()
    take(result(PASSED))
    take(result(FAILED))
    text = urlopen(url).read().decode()
    labels = 'namespace="default",test="canary"'
    assert f'headrace_mirror_test_verdict{{{labels},verdict="Failed"}} 1.0' in text
    assert f'headrace_mirror_test_verdict{{{labels},verdict="Passed"}} 0.0' in text
    missing = 'namespace="default",outcome="missing",test="canary"'
    assert f"headrace_mirror_test_messages{{{missing}}} 3.0" in text
    with pytest.raises(InvalidSpec, match="choose another --metrics-port"):
        serve_metrics(TEST, port)
