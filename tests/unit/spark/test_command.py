"""Exit of a verifier that has a verdict, or whose comparison crashed."""

import errno
import sys
from pathlib import Path

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest, Verdict
from headrace.mirror_test import MirrorTestRun, Result, documents
from headrace.report import pages
from headrace_spark import command, verify_job

RUN = MirrorTestRun(
    name="r1",
    test=MirrorTest.model_validate(mirror_test_of_another("nightly")),
)


@pytest.fixture(autouse=True)
def configured_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure Spark outside the job, so that no test needs Java and jars."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")


@pytest.mark.parametrize("fails", ["page", "report"])
def test_a_full_disk_takes_no_verdict_along(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", f"/reports/{fails}")

    def no_space(*_: object) -> None:
        raise full

    passed = Result(
        verdict=Verdict.PASSED,
        reasons=(),
        run="r1",
        flow=None,
        test=RUN.test,
        judged_ms=1,
        versions={},
    )
    monkeypatch.setattr(verify_job, "judged", lambda *_: passed)
    if fails == "page":
        monkeypatch.setattr(pages, "page", no_space)
    else:
        monkeypatch.setattr(documents, "write", no_space)
    test = tmp_path / "test.yaml"
    test.write_text(RUN.test.model_dump_json(by_alias=True, exclude_none=True))
    monkeypatch.setattr(
        sys, "argv", ["verify", f"--test={test}", "--run=r1", f"--out={tmp_path / 'out'}"]
    )
    code = command.verify()
    shown = capsys.readouterr()
    assert '"Passed"' in shown.out
    assert f"/reports/{fails}: No space left on device" in shown.err
    assert "Traceback" not in shown.err
    assert (tmp_path / "out" / "report.json").exists() == (fails == "page")
    assert code == (command.DONE if fails == "page" else command.INCONCLUSIVE)


def test_a_verdict_of_before_does_not_outlive_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job of a run starts again after it was killed, and fails."""

    def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(verify_job, "judged", crash)
    test, old = tmp_path / "test.yaml", tmp_path / "report.json"
    test.write_text(RUN.test.model_dump_json(by_alias=True, exclude_none=True))
    old.write_text('{"verdict": "Passed"}')
    monkeypatch.setattr(sys, "argv", ["verify", f"--test={test}", "--run=r1", f"--out={tmp_path}"])
    assert command.verify() == command.INCONCLUSIVE
    assert not old.exists()
    assert "a bug" in capsys.readouterr().err
