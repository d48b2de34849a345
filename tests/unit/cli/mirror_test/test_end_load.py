"""``headrace test end-load`` on this machine finds the run, or reports that there is none."""

from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.cli.screen.exits import Exit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_of(folder: Path, name: str, *files: str) -> Path:
    run = folder / "headrace-reports" / "orders" / name
    run.mkdir(parents=True)
    for file in files:
        (run / file).touch()
    return run


def test_the_run_that_is_under_way_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = run_of(folder, "1", "test.json", "report.json")
    under_way = run_of(folder, "2", "test.json")
    assert main(["test", "end-load", "orders"]) == Exit.OK
    assert (under_way / "end-load").exists()
    assert not (over / "end-load").exists()
    assert "orders sends no further messages" in capsys.readouterr().out


def test_a_run_with_a_folder_of_its_own_is_named(folder: Path) -> None:
    (folder / "test.json").touch()
    assert main(["test", "end-load", "orders", "--report", str(folder)]) == Exit.OK
    assert (folder / "end-load").exists()


def test_window_under_way_is_found_in_the_folder_of_all_windows(folder: Path) -> None:
    """Only a file in the folder of a window ends its load."""
    run_of(folder, "1", "test.json", "report.json")
    window = run_of(folder, "2", "test.json")
    assert main(["test", "end-load", "orders", "--report", str(window.parent)]) == Exit.OK
    assert (window / "end-load").exists()


@pytest.mark.parametrize("files", [(), ("test.json", "report.json")])
def test_folder_without_a_run_under_way_is_refused(
    files: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(folder, "1", *files)
    assert main(["test", "end-load", "orders", "--report", str(run)]) == Exit.UNREACHABLE
    assert f"no run of orders is under way in {run}" in capsys.readouterr().err
    assert not (run / "end-load").exists()


def test_without_a_run_there_is_nothing_to_end(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(folder, "1", "test.json", "report.json")
    assert main(["test", "end-load", "orders"]) == Exit.UNREACHABLE
    assert "no run of orders is under way" in capsys.readouterr().err
