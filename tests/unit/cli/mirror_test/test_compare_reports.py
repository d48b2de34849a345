"""``headrace test compare``: reports side by side, and errors for files that are no report."""

from pathlib import Path
from typing import Any

import pytest

from headrace.api import ChaosAction, ChaosStep, MirrorTest, Verdict
from headrace.cli.main import main
from headrace.cli.screen.exits import Exit
from headrace.mirror_test import Counts, Fault, Latency, Result, documents

KILLED = Fault(
    step=ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50), at_ms=1, recovery_seconds=2.25
)


def report(folder: Path, name: str, run: str = "r", **load: Any) -> str:
    clusters = {
        "source": {"alias": "east", "bootstrapServers": "east:1"},
        "target": {"alias": "west", "bootstrapServers": "west:1"},
    }
    test = MirrorTest.model_validate(
        {"metadata": {"name": name}, "spec": {**clusters, "load": load}}
    )
    result = Result(
        verdict=Verdict.FAILED,
        reasons=("7 messages are missing",),
        run=run,
        flow=None,
        test=test,
        counts=Counts(acknowledged=12_345, missing=7),
        latency_ms=Latency(p50=4, p99=90, p999=1_200, max=1_234, measured=1, histogram=()),
        faults=(KILLED,) if load else (),
        judged_ms=1,
        versions={"headrace": "1.2.3"},
    )
    place = folder / name / run
    place.mkdir(parents=True)
    documents.write(place / documents.REPORT, result)
    return str(place)


def test_reports_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = report(tmp_path, "ours", messageSizeBytes=100)
    theirs = report(tmp_path, "theirs")
    out = tmp_path / "out"
    assert main(["test", "compare", ours, f"{theirs}/report.json", "--report", str(out)]) == 0
    printed = capsys.readouterr().out
    lines = {" ".join(line.split()) for line in printed.splitlines()}
    assert lines >= {
        "ours theirs",
        "verdict Failed Failed",
        "missing 7 7",
        "messages 12,345 12,345",
        "latency, 99 % 90 ms 90 ms",
        "recovery 1 KillDriver: 2.2 s -",
        "note: The tests differ in load.messageSizeBytes, chaos.",
    }
    html = (out / "comparison.html").read_text()
    assert '<th class="cell">theirs</th>' in html
    assert "http" not in html.replace("http://www.w3.org", "")


def test_runs_of_one_test_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reports = [report(tmp_path, "ours", run) for run in ("r1", "r2")]
    assert main(["test", "compare", *reports]) == Exit.OK
    assert capsys.readouterr().out.split()[:2] == ["ours/r1", "ours/r2"]
    assert (tmp_path / "headrace-reports" / "comparison.html").exists()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["a"], "a comparison needs at least two reports"),
        (["a", "nowhere.json"], "nowhere.json cannot be read: No such file or directory"),
        (["a", "a"], "a report is named twice"),
        (["a", "b.json"], "b.json is not a report of this version of headrace"),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(report(tmp_path, "x")).rename("a")
    Path("b.json").write_text("{}")
    assert main(["test", "compare", *files]) == Exit.USAGE
    assert sentence in capsys.readouterr().err
