"""The pages of a service on one machine: their commands run as they are printed.

The folders belong to this test. Small programs replace the parts that require root or systemd
(users, groups, units); systemd's part follows the example's own unit file.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.flows import manifest, spec
from support.patience import WITHIN_S
from support.records import make_topic, numbered, produce, read, unique

from headrace.host import spawn
from headrace.sandbox import SandboxCluster

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "examples" / "systemd" / "headrace@.service"
FOLDERS = ("/opt", "/etc/headrace", "/etc/systemd/system", "/var/lib", "/run")
INSTALL = "/opt/headrace-0.1.0/bin/pip install '/path/to/clone[driver]'\n"
PLAYED = {
    "useradd": "exit 0",
    "chown": "exit 0",
    "sudo": 'shift 2; exec "$@"',
    "install": 'for a; do shift; [ "$a" = headrace ] || [ "$a" = -g ] || set -- "$@" "$a"; done\n'
    'exec /usr/bin/install "$@"',
    "systemctl": 'echo "$@" >> "$SYSTEMCTL"',
}


def blocks(page: str) -> list[str]:
    return re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


class Machine:
    """Folders, and the service ``headrace@orders`` as systemd would run it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._asked = root / "systemctl"
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            **os.environ,
            "PATH": f"{root}/bin:{root}/opt/headrace/bin:{os.environ['PATH']}",
            "SYSTEMCTL": str(self._asked),
            "BROWSER": "true",
        }
        for folder in FOLDERS:
            (root / folder[1:]).mkdir(parents=True)
        (root / "bin").mkdir()
        for name, script in PLAYED.items():
            program = root / "bin" / name
            program.write_text(f"#!/bin/bash\n{script}\n")
            program.chmod(0o755)
        (root / UNIT.name).write_text(self.here(UNIT.read_text()))

    def here(self, text: str) -> str:
        """Return the text with the folders of this machine."""
        return re.sub(r"(?<![\w.])/(opt|etc|var/lib|run)/", rf"{self._root}/\1/", text)

    def bash(self, script: str, **more: str) -> str:
        """Run a block of commands, and return its output."""
        self._asked.write_text("")
        done = subprocess.run(
            ["bash", "-e", "-c", self.here(script)],
            cwd=self._root,
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.log
        for asked in self._asked.read_text().splitlines():
            self._systemctl(*asked.split())
        return done.stdout + done.stderr

    @property
    def log(self) -> str:
        """Log of the service."""
        file = self._root / "journal"
        return file.read_text() if file.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _systemctl(self, verb: str, *names: str) -> None:
        if verb == "daemon-reload":
            return
        assert names[-1] == "headrace@orders"
        if verb == "reload":
            os.kill(self.pid, signal.SIGHUP)
            return
        assert verb in {"enable", "start", "restart"}
        self.end()
        unit = ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(self._root / "etc" / "systemd" / "system" / UNIT.name)
        service = {key: value.replace("%i", "orders") for key, value in unit["Service"].items()}
        options = Path(service["EnvironmentFile"].removeprefix("-")).read_text()
        settings = dict(one.split("=", 1) for one in service["Environment"].split())
        settings |= dict([options.strip().split("=", 1)])
        Path(settings["XDG_RUNTIME_DIR"]).mkdir(exist_ok=True)
        with (self._root / "journal").open("ab") as journal:
            self._process = spawn(
                ["bash", "-c", f"exec {service['ExecStart']}"],
                env=self.environment | settings,
                stdout=journal,
                stderr=journal,
            )

    def end(self) -> None:
        """Stop the service in order."""
        if self._process is not None:
            self._process.terminate()
            code, self._process = self._process.wait(WITHIN_S), None
            assert code == 0, self.log


@pytest.fixture
def machine() -> Iterator[Machine]:
    # A short path: it has the run's sockets.
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        machine = Machine(Path(folder))
        try:
            yield machine
        finally:
            machine.end()


@pytest.mark.long
def test_the_commands_of_the_pages_do_what_they_say(
    east: SandboxCluster, west: SandboxCluster, machine: Machine, wait_until: Callable[..., Any]
) -> None:
    topic = make_topic(spec(east), unique("served"), 1)
    produce(spec(east), topic, numbered(100, 1))
    root = Path(machine.here("/opt/"))
    (root.parent / "flow.yaml").write_text(yaml.safe_dump(manifest("orders", east, west, topic)))
    options = root.parent / "etc" / "headrace" / "orders.env"
    options.write_text("HEADRACE_OPTIONS=--metrics-port=0\n")

    def ready() -> bool:
        return bool(re.search(r"(?m)^orders +True", machine.bash(f"{status.strip()} || true")))

    def copied() -> int:
        return sum(len(found) for found in read(spec(west), f"east.{topic}").values())

    install, status, upgrade, dashboard, *rest = blocks("standalone-service.md")
    assert rest == []
    assert INSTALL in install
    linked = f"ln -s {Path(sys.executable).parent}/headrace /opt/headrace-0.1.0/bin/headrace\n"
    machine.bash(install.replace(INSTALL, linked))
    wait_until(ready)
    wait_until(copied, until=lambda seen: seen >= 100)
    assert re.search(r"(?m)^http://127.0.0.1:\d+/", machine.bash(dashboard))

    before = machine.pid
    machine.bash(f"cp -a /opt/headrace-0.1.0 /opt/headrace-0.2.0\n{upgrade}")
    assert (root / "headrace").readlink() == Path("headrace-0.2.0")
    assert machine.pid != before
    wait_until(ready)
    produce(spec(east), topic, numbered(100, 1))
    wait_until(copied, until=lambda seen: seen >= 200)
    assert copied() == 200, "nothing is copied twice after an orderly stop"

    (closer,) = blocks("troubleshooting-standalone.md")
    shown = machine.bash(
        closer.replace("PID", str(machine.pid)), XDG_RUNTIME_DIR=machine.here("/run/headrace")
    )
    for expected in (r"(?m)^  name: orders$", r"(?m)^  name: orders-source-task-0$"):
        assert re.search(expected, shown), shown
    machine.bash("systemctl reload headrace@orders")
    wait_until(lambda: "reload" in machine.log.lower())
