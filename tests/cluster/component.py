"""Process of a cluster that can be started, stopped, killed and frozen."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import urllib3

from headrace.errors import Fatal, GaveUp
from headrace.host import spawn

START_TIMEOUT_S = 120
"""Time-out of a start, which takes 3 s on two idle cores and 20 s on very busy ones."""

STOP_TIMEOUT_S = 60
"""Time-out of a stop, which takes less than 1 s, or 5 s for an API server without its etcd."""

POLL_INTERVAL_S = 0.05


@dataclass
class Component:
    """Process of the cluster, such as etcd or kube-apiserver, that ends with its parent process.

    Its data and its port outlive a stop or a kill, so that it resumes there at its next start.
    """

    command: Sequence[str | Path]
    log: Path
    """Output of all its starts."""
    is_ready: Callable[[], bool]
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Name of its log file without the suffix."""
        return self.log.stem

    @property
    def running(self) -> bool:
        """Whether the process runs, even if it is frozen."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start or thaw the process if necessary, and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process, without waiting until it is ready."""
        if self.running:
            self.thaw()
            return
        with self.log.open("ab") as log:
            self._spawn(log)

    def wait_until_ready(self) -> None:
        """Wait until the component is ready.

        Raises Fatal if it ends, and GaveUp if it is not ready in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.is_ready():
            if not self.running:
                raise Fatal(f"{self.name} ended while it started: {self._last_words()}")
            if time.monotonic() > deadline:
                raise GaveUp(
                    f"{self.name} is not ready after {START_TIMEOUT_S} s: {self._last_words()}"
                )
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """End the process cleanly (SIGTERM)."""
        if self.running:
            self.thaw()
            self.signal(signal.SIGTERM)
            self._wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End the process as a power cut does (SIGKILL)."""
        if self.running:
            self.signal(signal.SIGKILL)
            self._wait(STOP_TIMEOUT_S)

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP), and wait until it is frozen.

        Its connections stay open without answers.
        """
        self.signal(signal.SIGSTOP)
        while self.running and psutil.Process(self._pid()).status() != psutil.STATUS_STOPPED:
            time.sleep(POLL_INTERVAL_S)

    def thaw(self) -> None:
        """Resume the frozen process (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def _pid(self) -> int | None:
        return self.process.pid if self.process else None

    def _spawn(self, log: IO[bytes]) -> None:
        self.process = spawn(self.command, stdout=log, stderr=log, env=self._environment())

    def _environment(self) -> dict[str, str]:
        """Return an environment with only the user's PATH, extended by root's program folders."""
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {"PATH": path, "HOME": str(self.log.parent)}

    def signal(self, number: signal.Signals) -> None:
        if not self.process:
            raise Fatal(f"{self.name} was not started")
        self.process.send_signal(number)

    def _wait(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while self.running:
            if time.monotonic() > deadline:
                raise GaveUp(f"{self.name} did not end within {within_s} s: {self._last_words()}")
            time.sleep(POLL_INTERVAL_S)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([*lines[-10:], f"({self.log})"])


@dataclass
class Daemon(Component):
    """Component that outlives this process. Another process finds it by its pid file."""

    @property
    def running(self) -> bool:
        """Whether the process runs, even if it is frozen."""
        return self._pid() is not None

    listen: tuple[str, int] | None = None
    """Address outside its network on which it listens by an inherited socket, ``$LISTENER``."""

    def _spawn(self, log: IO[bytes]) -> None:
        environment, descriptors = self._environment(), list[int]()
        with ExitStack() as held:
            if self.listen:
                listener = held.enter_context(self._listener(self.listen))
                descriptors.append(listener.fileno())
                environment["LISTENER"] = str(listener.fileno())
            self.process = spawn(
                self.command,
                at_parents_death=None,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=descriptors,
            )
        # Its start time distinguishes it from a later process with the same pid.
        self.log.with_suffix(".pid").write_text(f"{self.process.pid} {_began(self.process.pid)}")

    def _listener(self, address: tuple[str, int]) -> socket.socket:
        try:
            return socket.create_server(address)
        except OSError as error:
            raise Fatal(
                f"{self.name} cannot listen on port {address[1]}: {error.strerror}"
            ) from error

    def _pid(self) -> int | None:
        try:
            pid, began = self.log.with_suffix(".pid").read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if _began(int(pid)) == began else None

    def signal(self, number: signal.Signals) -> None:
        pid = self._pid()
        if pid is None:
            raise Fatal(f"{self.name} does not run")
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)


def _began(pid: int) -> str | None:
    """Return the start time of a process in ticks, or None if it has ended (proc(5), stat)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, began = fields[0], fields[19]
    return None if state in "ZX" else began


def is_ok(url: str, authority: Path | None = None) -> bool:
    """Return True if a GET request succeeds."""
    with (
        urllib3.PoolManager(retries=False, ca_certs=authority and str(authority)) as pool,
        suppress(urllib3.exceptions.HTTPError),
    ):
        return pool.request("GET", url, timeout=2).status == 200
    return False
