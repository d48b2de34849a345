"""Threads of a process, by their names in the kernel."""

from contextlib import suppress
from pathlib import Path

CLIENT = "rdk:main"
"""Name of the one thread that each client of librdkafka has."""


def threads_named(name: str, pid: int | str = "self") -> set[str]:
    """Return the ids of the threads that have this name now."""
    found = set()
    for comm in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # it has ended
            if comm.read_text().strip() == name:
                found.add(comm.parent.name)
    return found
