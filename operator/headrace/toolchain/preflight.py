"""Check of the requirements of `make demo` on this machine.

It prints the requirements, and fails if they are not met. Make runs this file with a plain Python
before anything is installed. It therefore uses only the standard library and no headrace package.
"""

import os
import runpy
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

MB, GB = 10**6, 10**9

# Measured with the lock of 0.1.0 on Python 3.11 to 3.13, rounded up.
PACKAGES_DOWNLOAD = 600 * MB
"""Size of the downloaded packages. PySpark's source distribution takes 450 MB."""
ENVIRONMENT = 3_400 * MB
"""Maximum size of the environment while it is installed.

PySpark's source, its build and its wheel need 2.4 GB only during the installation. The installed
environment has a size of 1.0 GB.
"""
PIP_CACHE = 1 * GB
"""Size of pip's cache, with the downloads and PySpark's wheel (451 MB)."""

DEMO_JARS = ("kafka-broker", "spark-kafka")
"""Sets of jars that the demo needs, as tables of ``jars.toml``."""
DEMO_DATA = 3 * GB
"""Disk space for the demo's data, which is a million records of 1 KiB on two clusters.

2.2 GB were measured.
"""
DEMO_MEMORY = 3 * GB
"""Memory of the demo.

2.6 GB were measured: 1.4 GB for Spark's JVM, 0.3 GB for each broker, and 0.1 GB for each driver.
"""

# Loaded by its path, because headrace may not be installed yet.
_FOLDERS = runpy.run_path(str(Path(__file__).parents[1] / "host" / "files.py"))


@dataclass(frozen=True)
class DiskRequirement:
    """Disk space that is required in a folder."""

    purpose: str
    folder: Path
    """Folder, which need not exist."""
    size_bytes: int


def environment_needs(environment: Path) -> tuple[DiskRequirement, ...]:
    """Return the disk space for installing into ``environment``, a virtual environment."""
    home_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pip_cache = Path(os.environ.get("PIP_CACHE_DIR") or home_cache / "pip")
    return (
        DiskRequirement(
            "the Python environment and its making", environment.absolute(), ENVIRONMENT
        ),
        DiskRequirement("pip's cache", pip_cache, PIP_CACHE),
    )


def absent_jars() -> dict[str, int]:
    """Return the names and sizes in bytes of the demo's jars that are not in the cache."""
    folder = _FOLDERS["cache_home"]() / "jars"
    pinned = tomllib.loads(Path(__file__).with_name("jars.toml").read_text(encoding="utf-8"))
    absent = {}
    for jar_set in DEMO_JARS:
        for coordinates, facts in pinned[jar_set].items():
            _, name, version = coordinates.split(":")
            file = f"{name}-{version}.jar"
            if not (folder / file).is_file():
                absent[file] = int(facts["bytes"])
    return absent


def demo_needs() -> tuple[DiskRequirement, ...]:
    """Return the disk space of the demo, without its environment."""
    jars = sum(absent_jars().values())
    return (
        # Twice the size, because Ivy has its own cache during the download.
        *([DiskRequirement("jars", _FOLDERS["cache_home"](), 2 * jars)] if jars else []),
        DiskRequirement("two clusters with their data", _FOLDERS["state_home"](), DEMO_DATA),
    )


def shortages(needs: Iterable[DiskRequirement], memory_bytes: int) -> Iterator[str]:
    """Yield a message for each disk with too little space, and for too little memory."""
    for _, group in groupby(sorted(needs, key=_device), key=_device):
        wanted = list(group)
        total = sum(need.size_bytes for need in wanted)
        free = shutil.disk_usage(_existing(wanted[0].folder)).free
        if free < total:
            parts = ", ".join(f"{_size(n.size_bytes)} in {n.folder} ({n.purpose})" for n in wanted)
            yield (
                f"Too little disk: {parts} would be needed, and {_size(free)} are free there. "
                "Free some space, or move XDG_CACHE_HOME, XDG_STATE_HOME or the clone itself."
            )
    if (available := _available_memory()) < memory_bytes:
        yield (
            f"Too little memory: {_size(memory_bytes)} would be needed, and {_size(available)} are "
            "available. End other programs, or use a larger machine."
        )


def main(stamp: Path, lock: Path) -> int:
    """Print the requirements of the demo. Return 3 if they are not met, else 0.

    The environment is complete if ``stamp`` is not older than ``lock``, which is make's rule.
    """
    ready = stamp.exists() and stamp.stat().st_mtime >= lock.stat().st_mtime
    jars = sum(absent_jars().values())
    downloads = [] if ready else [f"up to {_size(PACKAGES_DOWNLOAD)} of Python packages (pip)"]
    downloads += [f"{_size(jars)} of jars (Ivy)"] if jars else []
    if downloads:
        _say(f"Downloads, once: {' and '.join(downloads)}.")
    needs = (() if ready else environment_needs(stamp.parent)) + demo_needs()
    disk = ", ".join(f"{_size(need.size_bytes)} in {need.folder}" for need in needs)
    _say(f"Needs: {_size(DEMO_MEMORY)} of memory and, on disk, {disk}.")
    lacking = list(shortages(needs, DEMO_MEMORY))
    for sentence in lacking:
        _say(sentence)
    return 3 if lacking else 0


def _device(need: DiskRequirement) -> int:
    return _existing(need.folder).stat().st_dev


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _available_memory() -> int:
    """Return the memory in bytes that the kernel estimates as available without swapping."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    return int(facts["MemAvailable"].split()[0]) * 1024


def _size(size_bytes: int) -> str:
    return f"{size_bytes / GB:.1f} GB" if size_bytes >= GB else f"{size_bytes / MB:.0f} MB"


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
