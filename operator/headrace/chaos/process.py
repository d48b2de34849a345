"""Signals to the driver beside us: in its pod, whose processes all its containers share."""

import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

from headrace.errors import InvalidSpec

_PROC = Path("/proc")
_DRIVER = ("headrace", "driver")


def find_driver(name: str, proc: Path = _PROC) -> int:
    """The id of the process that is the driver of this name; raises ``InvalidSpec`` without one.

    By name: on a machine, unlike in a pod, there are drivers that are none of our business.
    """
    for folder in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # ended meanwhile
        named = [Path(word).name for word in words]
        if _DRIVER in pairwise(named) and f"--name={name}" in words:
            return int(folder.name)
    raise InvalidSpec(f"no process here is driver {name}")


def kill(pid: int) -> None:
    """Kill -9."""
    os.kill(pid, signal.SIGKILL)


def freeze(pid: int, for_s: float) -> None:
    """Stop a process, and let it go on after ``for_s`` seconds; at once when we are told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
    finally:
        os.kill(pid, signal.SIGCONT)
