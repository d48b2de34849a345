"""``headrace test signal``: kills or freezes a driver from another container of its pod."""

import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

import click

from headrace.errors import InvalidSpec

_PROC = Path("/proc")
_DRIVER = ("headrace", "driver")


def find_driver(name: str, proc: Path = _PROC) -> int:
    """Return the process id of the driver of this name. Raise ``InvalidSpec`` if there is none.

    A pod has only one driver, but a machine may have several.
    """
    for folder in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # the process has ended since the listing
        named = [Path(word).name for word in words]
        if _DRIVER in pairwise(named) and f"--name={name}" in words:
            return int(folder.name)
    raise InvalidSpec(f"no process here is driver {name}")


def kill(pid: int) -> None:
    """Kill a process with -9."""
    os.kill(pid, signal.SIGKILL)


def freeze(pid: int, for_s: float) -> None:
    """Suspend a process for ``for_s`` seconds. Resume it early on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
    finally:
        os.kill(pid, signal.SIGCONT)


@click.command(hidden=True)
@click.option(
    "--driver", required=True, metavar="DRIVER", help="Name of the driver, which is its pod's."
)
@click.option(
    "--freeze",
    "freeze_s",
    type=float,
    metavar="SECONDS",
    help="Length of a freeze, in seconds. [default: kill -9]",
)
def command(driver: str, freeze_s: float | None) -> None:
    """Kill or freeze the process of a driver."""
    pid = find_driver(driver)
    if freeze_s is None:
        kill(pid)
    else:
        freeze(pid, freeze_s)
