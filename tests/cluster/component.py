"""One process of the control plane: started, stopped, killed, frozen."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import Fatal, GaveUp
from headrace.toolchain import spawn

START_TIMEOUT_S = 120
"""All of them are up 3 s after the start on two quiet cores, 20 s on very busy ones."""

STOP_TIMEOUT_S = 20
"""A stop takes well under a second, an API server's with its etcd gone 5 s."""


@dataclass
class Component:
    """etcd, kube-apiserver or kube-controller-manager; dies with the process that started it.

    Its data and its port outlive a stop or a kill, so that a start goes on where it ended.
    """

    command: Sequence[str | Path]
    log: Path
    """What it wrote, of all its starts."""
    is_ready: Callable[[], bool]
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def name(self) -> str:
        """What its log is named after."""
        return self.log.stem

    @property
    def running(self) -> bool:
        """Does it run, frozen or not?"""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, thaw it or leave it, as it needs; returns when it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Begin to start it; ``wait_until_ready`` ends it."""
        if self.running:
            self.thaw()
            return
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.log.parent)}
        with self.log.open("ab") as log:
            self.process = spawn(self.command, stdout=log, stderr=log, env=environment)

    def wait_until_ready(self) -> None:
        """Raises Fatal when it ended instead, GaveUp when it takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.is_ready():
            if not self.running:
                raise Fatal(f"{self.name} ended while it started: {self._last_words()}")
            if time.monotonic() > deadline:
                raise GaveUp(
                    f"{self.name} is not ready after {START_TIMEOUT_S} s: {self._last_words()}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """End it cleanly (SIGTERM)."""
        if self.running:
            self.thaw()
            self._signal(signal.SIGTERM)
            self._wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a power cut does (kill -9)."""
        if self.running:
            self._signal(signal.SIGKILL)
            self._wait(STOP_TIMEOUT_S)

    def freeze(self) -> None:
        """Let it hang (SIGSTOP): connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if not self.process:
            raise Fatal(f"{self.name} was not started")
        self.process.send_signal(number)

    def _wait(self, within_s: float) -> None:
        assert self.process
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise GaveUp(
                f"{self.name} did not end within {within_s} s: {self._last_words()}"
            ) from error

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([*lines[-10:], f"({self.log})"])
