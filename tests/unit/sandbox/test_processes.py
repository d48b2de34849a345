"""A remembered process is found again, and never confused with another one."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.errors import Fatal
from headrace.sandbox.processes import ProcessRecord, end

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
signal.pause()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_it_is_found_again(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ProcessRecord.of(child.pid, "sleeper").write(tmp_path / "process.json")
    record = ProcessRecord.read(tmp_path / "process.json")
    assert record is not None
    assert record.label == "sleeper"
    assert record.find() == psutil.Process(child.pid)


def test_nothing_was_remembered(tmp_path: Path) -> None:
    assert ProcessRecord.read(tmp_path / "process.json") is None


def test_another_process_with_its_id_is_not_taken_for_it(child: subprocess.Popen[bytes]) -> None:
    record = ProcessRecord.of(child.pid, "sleeper")
    boot, _, ticks = record.started.partition(":")
    assert record.model_copy(update={"started": f"{boot}:{int(ticks) - 1}"}).find() is None
    assert record.model_copy(update={"started": f"another-boot:{ticks}"}).find() is None


def test_one_that_ended_is_not_found(child: subprocess.Popen[bytes]) -> None:
    record = ProcessRecord.of(child.pid, "sleeper")
    child.kill()
    psutil.Process(child.pid).wait()
    assert record.find() is None
    with pytest.raises(Fatal, match=f"sleeper: process {child.pid} has ended"):
        ProcessRecord.of(child.pid, "sleeper")


def test_who_does_not_end_in_time_is_killed(child: subprocess.Popen[bytes]) -> None:
    command = [sys.executable, "-c", STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        both = [psutil.Process(child.pid), psutil.Process(stubborn.pid)]
        end(both, signal.SIGTERM, grace_s=0.5)
        assert not any(process.is_running() for process in both)
