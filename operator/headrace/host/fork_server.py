"""Server that forks processes, which start within milliseconds.

The fork server is a copy of this process with all imports. Open it before this process has threads,
locks or sockets, because the copy would have them as well.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from setproctitle import setproctitle

from headrace.errors import GaveUp
from headrace.host.parent_death_signal import PR_SET_PDEATHSIG

Main = Callable[[str, int], int]
"""Function that runs a process with its argument and its socket, and returns the exit code."""

_MESSAGE_BYTES = 1 << 16
_CODE_TIMEOUT_S = 1.0
"""Time limit in seconds for the server to report the exit code of a process that has ended."""


class ForkedProcess:
    """Process of the fork server, used like a ``subprocess.Popen``."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        """Create the handle. The server reports the exit code to ``status``."""
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._handle = os.pidfd_open(pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit code, or -1 if it is unknown.

        Raise ``subprocess.TimeoutExpired`` after ``timeout`` seconds.
        """
        if self.returncode is None:
            if not _is_readable(self._handle, timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = self._code()
            self._status.close()
            os.close(self._handle)
        return self.returncode

    def _code(self) -> int:
        if not _is_readable(self._status.fileno(), _CODE_TIMEOUT_S):
            return -1
        return int(self._status.recv(_MESSAGE_BYTES) or -1)


class ForkServer:
    """Copy of this process that forks other processes until it is closed."""

    def __init__(self, main: Main, title: str) -> None:
        """Create a server with the process title ``title``. ``main`` runs in each process."""
        self._main, self._title = main, title
        self._line: socket.socket | None = None
        self._pid = 0

    def open(self) -> None:
        """Start the server, unless it was started before."""
        if self._line is not None:
            return
        self._line, theirs = _pair()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._line.close()
            _run_alone(lambda: _Server(theirs, self._main).run(parent, self._title))
        theirs.close()

    def start(self, title: str, argument: str, link: int, log: int | None = None) -> ForkedProcess:
        """Start a process in its own session.

        Args:
            title: Process title.
            argument: Argument of the main function.
            link: File descriptor of a socket for the process.
            log: File descriptor for the output, or None for the output of this process.

        Raises:
            GaveUp: The server has ended.
        """
        assert self._line is not None, "the server is open"
        ours, theirs = _pair()
        handed_over = [theirs.fileno(), link] + ([] if log is None else [log])
        request = json.dumps({"title": title, "argument": argument}).encode()
        with theirs, suppress(OSError):
            socket.send_fds(self._line, [request], handed_over)
        if not (answer := ours.recv(_MESSAGE_BYTES)):
            raise GaveUp(
                f"process {self._pid}, which starts the drivers of this run, has ended: "
                "start the run again"
            )
        return ForkedProcess(int(answer), ours)

    def close(self) -> None:
        """Wait until all its processes have ended, and end the server."""
        if self._line is None:
            return
        self._line.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class _Server:
    """The server process, which forks on request and reports exit codes."""

    def __init__(self, line: socket.socket, main: Main) -> None:
        self._line, self._main = line, main
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """Process id and status socket, by pidfd."""

    def run(self, parent: int, title: str) -> int:
        """Serve until the client's socket is closed and every process has ended."""
        os.setsid()  # Ctrl-C must not reach the server
        _end_with_parent(parent, signal.SIGKILL)
        setproctitle(title)
        self._selector.register(self._line, selectors.EVENT_READ)
        while self._selector.get_map():
            for key, _ in self._selector.select():
                if key.fileobj is self._line:
                    self._take_request()
                else:
                    self._report_end(key.fd)
        return 0

    def _take_request(self) -> None:
        message, handed_over, _, _ = socket.recv_fds(self._line, _MESSAGE_BYTES, 3)
        if not message:
            self._selector.unregister(self._line)
            return
        status, link, *log = handed_over
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            request = json.loads(message)
            _run_alone(lambda: self._become(server, request, link, log))
        for descriptor in (link, *log):
            os.close(descriptor)
        reports = socket.socket(fileno=status)
        handle = os.pidfd_open(pid)
        self._running[handle] = pid, reports
        self._selector.register(handle, selectors.EVENT_READ)
        reports.send(str(pid).encode())

    def _become(
        self, server: int, request: Mapping[str, str], link: int, log: Sequence[int]
    ) -> int:
        os.setsid()
        # When the run ends, its end of ``link`` is closed and the process ends in order. A
        # suspended process could not, so the signal resumes it.
        _end_with_parent(server, signal.SIGCONT)
        self._selector.close()
        self._line.close()
        for handle, (_, reports) in self._running.items():
            os.close(handle)
            reports.close()
        for output in (1, 2) if log else ():
            os.dup2(log[0], output)
        setproctitle(request["title"])
        return self._main(request["argument"], link)

    def _report_end(self, handle: int) -> None:
        pid, reports = self._running.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        with reports, suppress(OSError):  # the client may not wait any more
            reports.send(str(os.waitstatus_to_exitcode(status)).encode())


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout))


def _run_alone(work: Callable[[], int]) -> None:
    """Run ``work`` in a forked process, which must not return into its parent's code."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = work()
    except BaseException:  # noqa: BLE001 - a defect, whose trace would not be printed elsewhere
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _end_with_parent(parent: int, number: signal.Signals) -> None:
    """Request a signal from the kernel when the parent ends. If it has ended, exit now."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
