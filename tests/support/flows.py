"""A running ``headrace run`` as users see it: a process, its output, its status."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec
from headrace.control import control
from headrace.host import spawn
from headrace.sandbox import SandboxCluster

_STOP_S = 60.0
"""Longest stop: 5 s for the drivers, and the ends of some interpreters."""

_STACKS_S, _LINES = 1.0, 400
"""After a failure: time in which drivers log their stacks, and number of printed lines."""

ANSWER_S = 60.0
"""Longest wait for an answer of a run, which takes some milliseconds on an idle machine."""


def spec(cluster: SandboxCluster) -> ClusterAccess:
    """Return the access to a sandbox cluster in plain text."""
    return ClusterAccess(
        ClusterSpec(alias=cluster.name, bootstrap_servers=cluster.bootstrap_servers)
    )


def manifest(
    name: str, source: SandboxCluster, target: SandboxCluster, *topics: str, **more: Any
) -> dict[str, Any]:
    """Return the manifest of a ReplicationFlow; ``more`` are further fields of its spec."""
    cluster = {"alias": target.name, "bootstrapServers": target.bootstrap_servers}
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {
            "source": {"alias": source.name, "bootstrapServers": source.bootstrap_servers},
            "target": cluster,
            "topics": {"include": list(topics)},
            **more,
        },
    }


class FlowRun:
    """``headrace run`` on one manifest file; ends with its ``with`` block."""

    def __init__(
        self, folder: Path, flows: Sequence[Mapping[str, Any]], *options: str, drivers: int = 1
    ) -> None:
        """Prepare a run of flows.

        ``drivers`` is the number of driver processes. Each of them takes a second of CPU to start.
        The number in a flow or in an option takes precedence.
        """
        said = any("replicas" in flow.get("spec", {}).get("drivers", {}) for flow in flows)
        if not said and not any(option.startswith("--drivers") for option in options):
            options = (*options, f"--drivers={drivers}")
        self.name: str = flows[0]["metadata"]["name"]
        self.file = folder / f"{self.name}.yaml"
        self.write(self.file, flows)
        self.log = folder / f"{self.name}.log"
        with self.log.open("ab") as log:
            self.process = spawn(  # it ends with us, also when we are killed
                [sys.executable, "-m", "headrace", "run", str(self.file), *options],
                stdout=log,
                stderr=log,
                env={**os.environ, "HEADRACE_LOG_LEVEL": "DEBUG"},
            )

    @staticmethod
    def write(file: Path, flows: Sequence[Mapping[str, Any]]) -> None:
        """Write flows as a manifest."""
        file.write_text(yaml.safe_dump_all(flows))

    def __enter__(self) -> "FlowRun":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self._explain()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WITHIN_S)

    def _explain(self) -> None:
        """Print the end of the log, and the stacks of all drivers' threads."""
        with suppress(psutil.NoSuchProcess):
            for driver in self.drivers():
                driver.send_signal(signal.SIGQUIT)
        time.sleep(_STACKS_S)
        print(*self.output.splitlines()[-_LINES:], sep="\n")

    @property
    def output(self) -> str:
        """Output of the process so far."""
        return self.log.read_text()

    def end(self, within_s: float = WITHIN_S) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(within_s)

    def stop(self, within_s: float = WITHIN_S) -> int:
        """End it as a service manager does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.end(within_s)

    def drivers(self) -> list[psutil.Process]:
        """Return its driver processes."""
        return drivers_of(self.process.pid)

    def kill_driver(self, name: str) -> None:
        """Kill a driver with SIGKILL, and wait for its end."""
        (driver,) = [one for one in self.drivers() if name in words_of(one)]
        driver.kill()
        driver.wait(WITHIN_S)

    def status(self) -> dict[str, Any]:
        """Return the answer of ``headrace status``, or an empty one while the run starts."""
        try:
            return control.request(self.name, "status", ANSWER_S)
        except Exception as error:
            if self.process.poll() is not None:
                raise AssertionError(
                    f"run ended ({self.process.returncode}): {self.output}"
                ) from error
            return {}

    def condition(self, type: str) -> dict[str, Any]:
        """Return a condition of the status, or an empty one."""
        conditions = self.status().get("conditions", [])
        return next((c for c in conditions if c["type"] == type), {})

    def ready(self) -> bool:
        """Return whether the flow is Ready."""
        return self.condition("Ready").get("status") == "True"

    def settled(self, drivers: int = 2, *, without: str = "") -> list[dict[str, Any]]:
        """Return the source tasks of a settled flow, or none.

        A flow is settled if it is Ready and all its units run where they are assigned, on that
        number of drivers. ``without`` is a driver that was killed: the status shows it until its
        end is noticed.
        """
        status = self.status()
        units = status.get("units", [])
        ready = any(
            (c["type"], c["status"]) == ("Ready", "True") for c in status.get("conditions", [])
        )
        on = {(unit["driverName"], unit["assignedTo"]) for unit in units}
        settled = ready and len(on) == drivers and all(at == to != without for at, to in on)
        return [unit for unit in units if settled and unit["type"] == "SourceTask"]

    def units(self, type: str = "SourceTask") -> list[dict[str, Any]]:
        """Return the units of a type."""
        return [unit for unit in self.status().get("units", []) if unit["type"] == type]

    def describe(self, unit: str) -> dict[str, Any]:
        """Return the description of a unit."""
        return control.request(self.name, "describe", ANSWER_S, task=unit)


def drivers_of(run: int) -> list[psutil.Process]:
    """Return the driver processes of the run with this process id."""
    found: list[psutil.Process] = []
    for server in psutil.Process(run).children():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            found += server.children()
    return found


def words_of(process: psutil.Process) -> list[str]:
    """Return the words of a command line, which is one text if the process was forked.

    A process that has ended has none.
    """
    try:
        return " ".join(process.cmdline()).split()
    except psutil.NoSuchProcess:
        return []
