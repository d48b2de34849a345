"""Children that die with their parent, and children that do not."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from headrace.host import parent_death_signal, spawn

PARENT = """
import signal, sys, time
from headrace.host import spawn
child = spawn([sys.executable, "-c", sys.argv[2]], at_parents_death=signal.Signals[sys.argv[1]]
              if sys.argv[1] else None, stdout=1)
print(child.pid, flush=True)
time.sleep(600)
"""
SLEEP = "import time; time.sleep(600)"


def _killed_parent(death_signal: str, child: str) -> tuple[psutil.Process, subprocess.Popen[str]]:
    """Return the child of a process that was killed with SIGKILL, and that process."""
    command = [sys.executable, "-c", PARENT, death_signal, child]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    lines = {parent.stdout.readline() for _ in range(2 if "ready" in child else 1)}  # in any order
    assert ("ready\n" in lines) == ("ready" in child)
    (pid,) = lines - {"ready\n"}
    process = psutil.Process(int(pid))
    parent.kill()
    parent.wait()
    return process, parent


def _runs(process: psutil.Process) -> bool:
    """Return True unless the process has ended or is a zombie, which its new parent has to reap."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_child_dies_when_its_parent_is_killed() -> None:
    child, _ = _killed_parent("SIGKILL", SLEEP)
    deadline = time.monotonic() + 60
    while _runs(child):
        assert time.monotonic() < deadline, child
        time.sleep(0.05)


def test_child_is_told_by_the_signal_that_was_asked_for() -> None:
    listens = (
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])\n"
        "print('ready', flush=True)\n"
        "print('got', signal.sigtimedwait([signal.SIGCONT], 60).si_signo, flush=True)\n"
    )
    _, parent = _killed_parent("SIGCONT", listens)
    assert parent.stdout is not None
    assert parent.stdout.read() == f"got {int(signal.SIGCONT)}\n"


def test_child_without_a_signal_lives_on() -> None:
    child, _ = _killed_parent("", "import time; print('ready', flush=True); time.sleep(600)")
    try:
        assert _runs(child)
    finally:
        child.kill()


def test_child_outlives_the_thread_that_asked_for_it() -> None:
    children: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
    thread = threading.Thread(
        target=lambda: children.append(spawn(command, stdout=subprocess.PIPE))
    )
    thread.start()
    thread.join()
    (child,) = children
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        # Otherwise the signal would follow the thread's end, before the child could print.
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_child_of_a_parent_that_is_gone_does_not_start(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    nobody = str(os.getpid() + 1)
    run = [
        sys.executable,
        parent_death_signal.__file__,
        str(int(signal.SIGKILL)),
        nobody,
        "touch",
        str(mark),
    ]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ended before it could set the parent-death signal of touch" in done.stderr
    assert not mark.exists()


def test_child_is_in_a_session_of_its_own() -> None:
    child = spawn(["sleep", "60"])
    try:
        assert os.getsid(child.pid) == child.pid
    finally:
        child.kill()
        child.wait()


def test_command_that_is_not_there() -> None:
    assert spawn(["/nowhere/java"], stderr=subprocess.DEVNULL).wait() == 127
    with pytest.raises(FileNotFoundError):
        spawn(["/nowhere/java"], at_parents_death=None)
