"""What the verifier believes of faults that another job made."""

import errno
from pathlib import Path
from typing import Any

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import ChaosAction, ChaosStep, MirrorTest, Verdict
from headrace.errors import GaveUp
from headrace.kafka import journal
from headrace.mirror_test import Fault, Faults, LoadManifest, Result, Run
from headrace_spark import command

KILL = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)
PLAN = Fault(step=KILL, error="nobody did it")
DONE = Fault(step=KILL, at_ms=5, recovery_seconds=2.5)
RUN = Run(
    name="r1",
    test=MirrorTest.model_validate(mirror_test_of_another("nightly")),
)


def write(path: Path, fault: Fault) -> Path:
    path.write_text(Faults(faults=(fault,)).model_dump_json(by_alias=True))
    return path


@pytest.mark.parametrize(("reported", "believed"), [(None, PLAN), (DONE, DONE)])
def test_what_nobody_tells_of_a_step_is_in_the_plan(
    reported: Fault | None, believed: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(cluster: Any, run: str, key: str) -> Any:
        assert (run, key) == ("r1", "faults")
        return reported and Faults(faults=(reported,)).model_dump(mode="json", by_alias=True)

    monkeypatch.setattr(journal, "read", read)
    plan = write(tmp_path / "plan.json", PLAN)
    assert command._faults(RUN, tmp_path, plan) == (believed,)


def test_without_a_plan_they_are_in_the_folder(tmp_path: Path) -> None:
    assert command._faults(RUN, tmp_path, None) == ()
    write(tmp_path / "chaos.json", DONE)
    assert command._faults(RUN, tmp_path, None) == (DONE,)


MANIFEST = LoadManifest(
    run="r1", topics=(), streams=(), started_ms=1, finished_ms=2, acknowledged_per_second=()
)


def keep(monkeypatch: pytest.MonkeyPatch, **records: Any) -> None:
    """What the journal has of the run."""
    monkeypatch.setattr(journal, "read", lambda cluster, run, key: records.get(key))
    monkeypatch.setattr(journal, "read_all", lambda cluster, run: records)


def test_a_damaged_manifest_is_replaced_by_the_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(monkeypatch, manifest=MANIFEST.model_dump(mode="json", by_alias=True))
    (tmp_path / "manifest.json").write_text('{"version": 2, "run": "r1", "topi')
    assert command._manifest(RUN, tmp_path) == MANIFEST
    assert "the copy in headrace-tests.internal of east is taken" in capsys.readouterr().err


@pytest.mark.parametrize("copy", [{}, {"manifest": {"version": 1}}])
def test_a_manifest_that_is_damaged_everywhere_is_said_to_be(
    copy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(monkeypatch, **copy)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(GaveUp, match="cannot be read"):
        command._manifest(RUN, tmp_path)


def test_a_load_without_a_manifest_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = {f"r1-{n}-0/progress": {"acknowledged": 1_000 + n} for n in range(2)}
    keep(monkeypatch, **progress)
    with pytest.raises(GaveUp, match=r"came to 2,001 acknowledged messages"):
        command._manifest(RUN, tmp_path)


def test_a_plan_that_is_lost_is_no_plan_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(GaveUp, match="nobody knows what was to be broken"):
        command._faults(RUN, tmp_path, tmp_path / "plan.json")


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
    monkeypatch.setattr(command, "_judged", lambda *_: passed)
    written = {
        "page": "headrace.report.page.page",
        "report": "headrace.mirror_test.documents.write",
    }
    monkeypatch.setattr(written[fails], no_space)
    test = tmp_path / "test.yaml"
    test.write_text(RUN.test.model_dump_json(by_alias=True, exclude_none=True))
    monkeypatch.setattr(
        "sys.argv", ["verify", f"--test={test}", "--run=r1", f"--out={tmp_path / 'out'}"]
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
    """The job of a run is done again after it was killed, and fails."""

    def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(command, "_judged", crash)
    test, old = tmp_path / "test.yaml", tmp_path / "report.json"
    test.write_text(RUN.test.model_dump_json(by_alias=True, exclude_none=True))
    old.write_text('{"verdict": "Passed"}')
    monkeypatch.setattr("sys.argv", ["verify", f"--test={test}", "--run=r1", f"--out={tmp_path}"])
    assert command.verify() == command.INCONCLUSIVE
    assert not old.exists()
    assert "a bug" in capsys.readouterr().err
