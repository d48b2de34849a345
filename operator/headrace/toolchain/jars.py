"""The jars that headrace starts a JVM with: a pinned list, each file checked by its SHA-256."""

import shutil
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import file_digest
from importlib.resources import files
from pathlib import Path

from headrace.errors import Fatal
from headrace.host import cache_home, file_lock
from headrace.toolchain import ivy
from headrace.toolchain.java import Java, find_java


class JarSet(StrEnum):
    """What the jars are for; the tables of ``jars.toml``."""

    KAFKA_BROKER = "kafka-broker"
    SPARK_KAFKA = "spark-kafka"
    MIRROR_MAKER = "mirror-maker"


@dataclass(frozen=True)
class Jar:
    """One file of a Maven repository."""

    group: str
    name: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def coordinates(self) -> str:
        """Its address in any Maven repository."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name it has in a Maven repository."""
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> Path:
        """Where it lies once it was fetched."""
        return cache_home() / "jars" / self.file_name

    def is_at(self, path: Path) -> bool:
        """Is the file at ``path`` this jar, by its content?"""
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest() == self.sha256


@cache
def pinned(jar_set: JarSet) -> tuple[Jar, ...]:
    """Return the jars of a set, as ``jars.toml`` pins them."""
    return read_pins(files(__package__).joinpath("jars.toml").read_text())[jar_set]


def read_pins(text: str) -> dict[str, tuple[Jar, ...]]:
    """Read the sets of a file such as ``jars.toml``."""
    found: dict[str, tuple[Jar, ...]] = {}
    for name, table in tomllib.loads(text).items():
        pins = []
        for coordinates, facts in table.items():
            group, artifact, version = coordinates.split(":")
            pins.append(Jar(group, artifact, version, facts["sha256"], facts["bytes"]))
        found[name] = tuple(pins)
    return found


def missing(*jar_sets: JarSet) -> tuple[Jar, ...]:
    """The jars of these sets that are still to be downloaded; a damaged one is among them."""
    return _missing(jar for jar_set in jar_sets for jar in pinned(jar_set))


def _missing(wanted: Iterable[Jar]) -> tuple[Jar, ...]:
    return tuple(jar for jar in dict.fromkeys(wanted) if not jar.is_at(jar.path))


def jars(jar_set: JarSet, java: Java | None = None) -> tuple[Path, ...]:
    """Return the files of a set; see ``fetched``."""
    return fetched(pinned(jar_set), java)


def fetched(wanted: Sequence[Jar], java: Java | None = None) -> tuple[Path, ...]:
    """Return the files of jars; missing ones are fetched first (by Ivy, on ``java`` or a found
    one).

    With all of them there, nothing is downloaded and no JVM is started. Processes that need the
    same jars at once wait for the first of them. Raises Fatal when a jar cannot be had or is not
    what was pinned.
    """
    if _missing(wanted):
        with file_lock(cache_home() / "jars.lock"):
            if absent := _missing(wanted):  # another process may have fetched them meanwhile
                _fetch(absent, java or find_java())
    return tuple(jar.path for jar in wanted)


def _fetch(absent: Sequence[Jar], java: Java) -> None:
    """Download beside the jars, check, and only then move in."""
    work = cache_home() / "ivy"
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    try:
        fetched = ivy.retrieve({jar.coordinates: jar.size_bytes for jar in absent}, work, java)
        for jar in absent:
            if not jar.is_at(fetched / jar.file_name):
                raise Fatal(
                    f"{jar.coordinates} as downloaded from {ivy.repository()} is not the jar that "
                    f"headrace was made with: its SHA-256 is not {jar.sha256}. Nothing was kept. "
                    "Whoever runs that repository, or a proxy on the way, can say why"
                )
        for jar in absent:
            jar.path.parent.mkdir(parents=True, exist_ok=True)
            (fetched / jar.file_name).replace(jar.path)
    finally:
        shutil.rmtree(work, ignore_errors=True)
