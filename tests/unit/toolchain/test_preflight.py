"""Checks of `make demo` before it begins, and their errors."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.host import cache_home
from headrace.toolchain import JarSet, missing, preflight

PLENTY = 10**18  # an exabyte: no machine has it


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(preflight, "ENVIRONMENT", 1)
    monkeypatch.setattr(preflight, "PIP_CACHE", 1)
    monkeypatch.setattr(preflight, "DEMO_DATA", 1)
    monkeypatch.setattr(preflight, "DEMO_MEMORY", 1)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.lock"
    path.touch()
    return path


@pytest.fixture
def stamp(tmp_path: Path, lock: Path) -> Path:
    path = tmp_path / "stamp"
    path.touch()
    os.utime(lock, ns=(0, 0))
    return path


def put_jars_in_place() -> None:
    folder = cache_home() / "jars"
    folder.mkdir(parents=True)
    for jar in missing(*JarSet):
        (folder / jar.file_name).touch()


def test_a_first_run_names_every_download(
    tmp_path: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preflight.main(tmp_path / "no-stamp", lock) == 0
    output = capsys.readouterr().out
    assert (
        "Downloads, once: up to 600 MB of Python packages (pip) and 48 MB of jars (Ivy)." in output
    )
    assert str(tmp_path / "state" / "headrace") in output


def test_an_environment_older_than_its_lock_is_made_anew(
    stamp: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.utime(stamp, ns=(0, 0))
    os.utime(lock, ns=(10**9, 10**9))
    assert preflight.main(stamp, lock) == 0
    assert "Python packages" in capsys.readouterr().out


def test_with_everything_there_no_download_is_spoken_of(
    stamp: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_jars_in_place()
    assert preflight.main(stamp, lock) == 0
    output = capsys.readouterr().out
    assert "ownload" not in output
    assert output.startswith("Needs: ")


def test_the_jars_it_misses_are_those_that_will_be_fetched() -> None:
    absent = missing(*map(JarSet, preflight.DEMO_JARS))
    assert preflight.absent_jars() == {jar.file_name: jar.size_bytes for jar in absent}
    put_jars_in_place()
    assert preflight.absent_jars() == {}


def test_too_little_disk_is_a_sentence_with_folder_needed_and_free(
    stamp: Path,
    lock: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "DEMO_DATA", PLENTY)
    assert preflight.main(stamp, lock) == 3
    refusal = capsys.readouterr().out.splitlines()[-1]
    assert refusal.startswith("Too little disk: ")
    assert f"1000000000.0 GB in {tmp_path / 'state' / 'headrace'} (two clusters" in refusal
    assert "would be needed, and " in refusal
    assert " GB are free there. Free some space, or move" in refusal


def test_folders_of_one_disk_are_added_up(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    needs = [
        preflight.DiskRequirement(name, tmp_path / name, free * 2 // 3) for name in ("one", "other")
    ]
    assert not list(preflight.shortages(needs[:1], 1))
    [sentence] = preflight.shortages(needs, 1)
    assert "one" in sentence
    assert "other" in sentence


def test_too_little_memory_is_a_sentence(tmp_path: Path) -> None:
    [sentence] = preflight.shortages([preflight.DiskRequirement("all", tmp_path, 1)], PLENTY)
    assert sentence.startswith("Too little memory: 1000000000.0 GB would be needed, and ")


def test_it_runs_on_a_bare_python(tmp_path: Path, lock: Path) -> None:
    """The Makefile runs it by its path, and without this environment's packages."""
    ended = subprocess.run(
        [sys.executable, "-I", "-S", preflight.__file__, str(tmp_path / "no-stamp"), str(lock)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in {0, 3}, ended.stderr
    assert ended.stdout.startswith("Downloads, once: ")
    assert ended.stderr == ""
