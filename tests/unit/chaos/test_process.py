"""Signals to a process that looks like a driver."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.screen.signal import find_driver, kill
from headrace.errors import InvalidSpec


@pytest.fixture
def driver() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def proc(folder: Path, **lines: list[str]) -> Path:
    for pid, words in lines.items():
        (folder / pid[1:]).mkdir()
        (folder / pid[1:] / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
    (folder / "self").mkdir()
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["/opt/headrace/bin/python", "/opt/headrace/bin/headrace", "driver", "--name=orders-1"],
        ["python3", "-m", "headrace", "driver", "--flow=orders", "--name=orders-1"],
    ],
)
def test_the_driver_is_known_by_its_command(tmp_path: Path, words: list[str]) -> None:
    pause, ours = ["/pause"], ["python", "headrace", "test", "signal", "--driver=orders-1"]
    another = ["headrace", "driver", "--name=orders-2"]
    found = proc(tmp_path, _1=pause, _3=another, _7=words, _12=ours)
    assert find_driver("orders-1", found) == 7


def test_where_there_is_no_driver_nothing_is_signalled(tmp_path: Path) -> None:
    others = proc(tmp_path, _1=["/pause"], _9=["headrace", "driver", "--name=orders-2"])
    with pytest.raises(InvalidSpec, match="no process here is driver orders-1"):
        find_driver("orders-1", others)


def test_a_driver_is_killed(driver: "subprocess.Popen[bytes]") -> None:
    kill(driver.pid)
    assert driver.wait(60) == -signal.SIGKILL


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("end", ["by itself", "when it is told to"])
def test_a_driver_stands_still_and_goes_on(driver: "subprocess.Popen[bytes]", end: str) -> None:
    for_s = 1.0 if end == "by itself" else 600.0
    program = f"from headrace.cli.screen.signal import freeze; freeze({driver.pid}, {for_s})"
    freezer = subprocess.Popen([sys.executable, "-c", program])
    # It may run again before this process looks: the kernel then reports that it continued.
    seen = os.waitid(os.P_PID, driver.pid, os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOWAIT)
    assert seen is not None
    assert seen.si_code == os.CLD_STOPPED or (for_s == 1.0 and seen.si_code == os.CLD_CONTINUED)
    if end == "when it is told to":
        freezer.terminate()
    assert freezer.wait(60) == 0
    assert state(driver.pid) != "T"
