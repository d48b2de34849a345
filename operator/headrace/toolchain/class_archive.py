"""An archive of the classes that a JVM loads at its start (HotSpot's class data sharing, JEP 310).

A JVM without one lists the classes that it loads; the archive is made from that list, once for a
Java and a class path, and the next JVMs map it: a broker starts in half the CPU time (2.0 s, not
3.8). A JVM that an archive does not fit starts without it.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headrace.host import cache_home, file_lock
from headrace.toolchain.java import Java

MAKE_TIMEOUT_S = 300
"""It takes five seconds of CPU; a Java that takes longer starts without an archive."""


@dataclass(frozen=True)
class ClassArchive:
    """For the JVMs of one Java and one class path."""

    java: Java
    classpath: Sequence[Path]

    @property
    def path(self) -> Path:
        """Where it lies; empty where this Java can make none. A replaced Java or jar gets a new
        one."""
        files = (self.java.executable, self.java.home / "release", *self.classpath)
        facts = [(str(at), at.stat().st_mtime_ns) for at in files if at.exists()]
        return (
            cache_home() / "java" / f"classes-{sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
        )

    def options(self, listed: Path) -> list[str]:
        """Start a JVM from the archive; where there is none, the JVM writes into ``listed`` which
        classes it loads."""
        if not (archive := self.path).exists():
            return ["-XX:+IgnoreUnrecognizedVMOptions", f"-XX:DumpLoadedClassList={listed}"]
        return [f"-XX:SharedArchiveFile={archive}"] if archive.stat().st_size else []

    def make(self, listed: Path) -> None:
        """Make it of the classes that a JVM has listed so far, unless it is there."""
        archive = self.path
        with file_lock(archive.parent / "classes.lock"):
            if archive.exists() or not listed.exists():
                return
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as folder:
                made = self._made(listed.read_bytes(), Path(folder))
                if not made.exists():
                    made.touch()  # empty: this Java makes none
                made.replace(archive)

    def _made(self, listed: bytes, folder: Path) -> Path:
        """In ``folder``, where a JVM that fails may leave what it likes."""
        classes, made = folder / "classes.txt", folder / "classes.jsa"
        classes.write_bytes(listed[: listed.rfind(b"\n") + 1])  # the JVM may be writing the next
        command: list[str | Path] = [
            *(self.java.executable, "-XX:TieredStopAtLevel=1", "-Xshare:dump"),
            *(f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"),
            *("-cp", ":".join(map(str, self.classpath))),
        ]
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(
                command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet,
                timeout=MAKE_TIMEOUT_S, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            made.unlink(missing_ok=True)
        return made
