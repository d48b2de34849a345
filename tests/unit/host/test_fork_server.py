"""Forked processes: their inputs, the report of their ends, and the signals that end them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from headrace.errors import GaveUp
from headrace.host import ForkedProcess, ForkServer

WITHIN_S = 60.0
RUN = """
import socket, time
from headrace.host import ForkServer
def main(argument, link):
    socket.socket(fileno=link).sendall(b"ready")
    time.sleep(600)
    return 0
server = ForkServer(main, "servers")
server.open()
ours, theirs = socket.socketpair()
child = server.start("child", "", theirs.fileno())
ours.recv(5)
print(child.pid, flush=True)
time.sleep(600)
"""


def answer(argument: str, link: int) -> int:
    """Send the argument on the socket, then end with the received exit code."""
    with socket.socket(fileno=link) as line:
        line.sendall(argument.encode())
        return int(line.recv(10))


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer(answer, "servers of a test")
    made.open()
    yield made
    made.close()


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Line = tuple[socket.socket, socket.socket]


def started(server: ForkServer, line: Line, argument: str = "hello") -> ForkedProcess:
    process = server.start(f"child of {argument}", argument, line[1].fileno())
    assert line[0].recv(100) == argument.encode()
    return process


def test_a_process_gets_its_argument_and_its_socket_and_its_code_is_reported(
    server: ForkServer, line: Line
) -> None:
    process = started(server, line)
    assert psutil.Process(process.pid).cmdline()[0] == "child of hello"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    line[0].sendall(b"7")
    assert process.wait(WITHIN_S) == 7
    assert process.returncode == 7


def test_each_process_has_its_own_end(server: ForkServer, line: Line) -> None:
    first, second = started(server, line), started(server, line)
    second.kill()
    assert second.wait(WITHIN_S) == -signal.SIGKILL
    assert first.returncode is None
    line[0].sendall(b"0")
    assert first.wait(WITHIN_S) == 0


def test_an_ended_process_gets_no_signal(server: ForkServer, line: Line) -> None:
    process = started(server, line)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(process.pid))
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == -signal.SIGKILL


def test_without_its_server_a_process_goes_on_and_no_other_starts(
    server: ForkServer, line: Line
) -> None:
    process = started(server, line)
    psutil.Process(process.pid).parent().kill()  # type: ignore[union-attr]
    with pytest.raises(GaveUp, match="start the run again"):
        started(server, line)
    line[0].sendall(b"0")
    assert process.wait(WITHIN_S) == -1, "nobody knows its code"


def test_the_output_goes_to_the_file_that_is_given(line: Line, tmp_path: Path) -> None:
    def write(argument: str, link: int) -> int:
        return os.write(2, argument.encode())

    log = tmp_path / "child.log"
    server = ForkServer(write, "servers of a test")
    server.open()
    with log.open("ab") as file:
        process = server.start("child", "what went wrong", line[1].fileno(), file.fileno())
    assert process.wait(WITHIN_S) == len("what went wrong")
    server.close()
    assert log.read_text() == "what went wrong"


def test_a_killed_parent_leaves_no_frozen_process() -> None:
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        server = child.parent()
        assert server is not None
        child.suspend()
        parent.kill()
        until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
        until(lambda: child.status() != psutil.STATUS_STOPPED)
        child.kill()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
