"""Container of a pod, as a local process with its status."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cluster.probes import Probe
from cluster.rest import Json

from headrace.host import spawn

MESSAGE = 2048
"""Number of characters of the log's end in a status that includes it."""
BACKOFF_S = 1.0
"""Delay before the second and each later restart. A kubelet waits 10 s, 20 s, ... 300 s."""


class Container:
    """Container that only its pod's thread starts, probes and ends."""

    def __init__(self, spec: Json, log: Path, ip: str) -> None:
        self.spec = spec
        self.log = log
        """Output of all its starts."""
        self.process: subprocess.Popen[bytes] | None = None
        self.restart_count = 0
        self.waiting: Json = {"reason": "ContainerCreating"}
        self._ip = ip
        self._id = ""
        self._started_at = ""
        self._terminated: Json = {}
        self._ended_at_s = 0.0
        self._kill_at_s: float | None = None
        self._probes: dict[str, Probe] = {}

    @property
    def running(self) -> bool:
        """Whether its process runs. Reading this records the end of the process."""
        if self.process and (code := self.process.poll()) is not None:
            self._note_end(code)
        return self.process is not None

    @property
    def has_ended(self) -> bool:
        """Whether its last process, or any before, has ended."""
        return bool(self._terminated)

    @property
    def failed(self) -> bool:
        """Whether its last process ended with an error."""
        return bool(self._terminated.get("exitCode"))

    @property
    def may_start(self) -> bool:
        """Whether it may start now. The first start and the first restart are not delayed."""
        since_s = time.monotonic() - self._ended_at_s
        return self.restart_count < 1 or since_s > BACKOFF_S

    def start(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        """Start the first or the next process.

        Raises Unsupported.
        """
        kinds = ("startupProbe", "readinessProbe", "livenessProbe")
        self._probes = {
            kind: Probe(self.spec, self.spec[kind], self._ip) for kind in kinds if kind in self.spec
        }
        if self._terminated:
            self.restart_count += 1
        with self.log.open("ab") as log:
            self.process = spawn(command, stdout=log, stderr=log, env=environment, cwd=cwd)
        self._id = f"local://{uuid.uuid4().hex}"
        self._started_at = now()
        self._kill_at_s = None

    def terminate(self, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after ``grace_s``, which a second call can only shorten."""
        if not self.process:
            return
        kill_at_s = time.monotonic() + grace_s
        if self._kill_at_s is None:
            self.process.send_signal(signal.SIGTERM)
            self._kill_at_s = kill_at_s
        self._kill_at_s = min(self._kill_at_s, kill_at_s)

    def poll(self, grace_s: float, *, terminating: bool) -> None:
        """Run the probes that are due, and kill the process at the end of its grace period.

        ``grace_s`` is the grace period after a failed probe.
        """
        if not self.running:
            return
        if self._kill_at_s is not None:
            if time.monotonic() > self._kill_at_s:
                self._kill_group()
            return
        startup = self._probes.get("startupProbe")
        if startup:
            startup.poll()
            if startup.failed:
                self.terminate(grace_s)
            if not startup.passed:
                return
        if readiness := self._probes.get("readinessProbe"):
            readiness.poll()
        if (liveness := self._probes.get("livenessProbe")) and not terminating:
            liveness.poll()
            if liveness.failed:
                self.terminate(grace_s)

    def status(self, *, over: bool) -> Json:
        """Return its ``containerStatus``. ``over`` means that it is not started again."""
        running = self.running
        started = running and (
            "startupProbe" not in self._probes or self._probes["startupProbe"].passed
        )
        readiness = self._probes.get("readinessProbe")
        if running:
            state: Json = {"running": {"startedAt": self._started_at}}
        elif over and self._terminated:
            state = {"terminated": self._terminated}
        else:
            state = {"waiting": self.waiting}
        has_last = self._terminated and "terminated" not in state
        return {
            "name": self.spec["name"],
            "image": self.spec["image"],
            "imageID": "",
            "containerID": self._id,
            "restartCount": self.restart_count,
            "started": started,
            "ready": started and (readiness is None or readiness.passed),
            "state": state,
            "lastState": {"terminated": self._terminated} if has_last else {},
        }

    def _note_end(self, code: int) -> None:
        self._kill_group()  # all processes of a container end with its first
        self.process = None
        self._ended_at_s = time.monotonic()
        self.waiting = {"reason": "CrashLoopBackOff"}
        exit_code = code if code >= 0 else 128 - code
        self._terminated = {
            "containerID": self._id,
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "startedAt": self._started_at,
            "finishedAt": now(),
        }
        if exit_code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            self._terminated["message"] = self.log.read_text(errors="replace")[-MESSAGE:]

    def _kill_group(self) -> None:
        assert self.process
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def now() -> str:
    """Return the current time in the format of Kubernetes objects."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
