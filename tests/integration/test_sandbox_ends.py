"""Sandboxes whose starting process ends in any way: no process of them is left."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.patience import WITHIN_S

from headrace.errors import Fatal
from headrace.sandbox import Sandbox
from headrace.sandbox.processes import ProcessRecord

WaitUntil = Callable[..., object]

STARTER = """
import signal, sys, time
from pathlib import Path
from headrace.sandbox import ClusterPlan, Sandbox
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's is ignored
with Sandbox.start("mine", [ClusterPlan("east")], home=Path(sys.argv[1])) as sandbox:
    print("started", flush=True)
    while True:  # a signal just before signal.pause() would not end that
        time.sleep(0.1)
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that starts a sandbox and stays."""
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def _wait_for_start(starter: "subprocess.Popen[str]") -> None:
    assert starter.stdout is not None
    assert starter.stdout.readline() == "started\n"


def _children(starter: "subprocess.Popen[str]", command: str = "") -> list[ProcessRecord]:
    """Return the processes that ``starter`` started and whose command line contains ``command``."""
    found = []
    for child in psutil.Process(starter.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, Fatal):  # or a zombie: it ended just now
            if command in " ".join(child.cmdline()):
                found.append(ProcessRecord.of(child.pid, "child"))
    return found


def _none_runs(records: list[ProcessRecord]) -> bool:
    return not any(record.find() for record in records)


def test_parent_killed_leaves_no_broker(
    starter: "subprocess.Popen[str]", tmp_path: Path, wait_until: WaitUntil
) -> None:
    _wait_for_start(starter)
    brokers = _children(starter)
    assert len(brokers) == 1
    starter.kill()
    wait_until(lambda: _none_runs(brokers))
    assert not Sandbox.open("mine", home=tmp_path).running


def test_ctrl_c_leaves_no_broker(starter: "subprocess.Popen[str]", tmp_path: Path) -> None:
    _wait_for_start(starter)
    brokers = _children(starter)
    assert len(brokers) == 1
    starter.send_signal(signal.SIGINT)
    starter.wait(timeout=WITHIN_S)
    assert _none_runs(brokers)
    assert not list(tmp_path.rglob("data"))


MOMENTS = ("kafka.tools.StorageTool", "kafka.Kafka")


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_while_it_starts_leaves_no_jvm(
    moment: str, starter: "subprocess.Popen[str]", tmp_path: Path, wait_until: WaitUntil
) -> None:
    or_later = MOMENTS[MOMENTS.index(moment) :]  # a poll may be too late for the first
    wait_until(lambda: any(_children(starter, command) for command in or_later))
    children = _children(starter)
    starter.send_signal(signal.SIGINT)
    starter.wait(timeout=WITHIN_S)
    assert _none_runs(children)
    assert not Sandbox.open("mine", home=tmp_path).running
