"""Programs of the tests that are built once from Go modules, and then lie in the user's cache."""

import subprocess
import time
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cluster.go import environment, find_go, version
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.errors import Fatal
from headrace.host import cache_home
from headrace.host.locks import file_lock

LAST_LINES = 15
"""How much of Go's output a failure shows: errors stand at its end."""


@dataclass(frozen=True)
class Program:
    """A program, and what a person reads while it is built or when it cannot be."""

    name: str
    what: str
    """What the tests know it as, such as ``the tests' API server``."""
    sources: Path
    """Folder of a Go module; its go.sum pins all that is downloaded."""
    package: str
    """The Go package, of this module or of one that it requires."""
    flags: tuple[str, ...]
    """Of ``go build``."""
    announcement: str
    """Why something is compiled, how long that takes, and how much is downloaded."""
    advice: str
    """What it needs, and what can be run without."""

    def get(self, console: Console | None = None) -> Path:
        """The program; it is built first when there is none of these sources and this Go.

        It takes minutes then, and ``console`` (default: standard error) says why. Processes that
        need it at once wait for the first of them. Raises Fatal when it cannot be had.
        """
        go = find_go()
        binary = cache_home() / self.name / self._key(go) / self.name
        if not binary.exists():
            console = console or Console(stderr=True)
            with file_lock(binary.parent.with_suffix(".lock")):
                if not binary.exists():  # another process may have built it meanwhile
                    said = f"{self.announcement} Then it lies in {binary.parent}."
                    console.print(said, soft_wrap=True)
                    self._build(go, binary, console)
        return binary

    def _key(self, go: Path) -> str:
        key = sha256(version(go).encode() + " ".join(self.flags).encode())
        own = sorted((self.sources / self.package).glob("*.go"))
        for file in (*own, *map(self.sources.joinpath, _MODULE)):
            key.update(file.read_bytes())
        return key.hexdigest()[:16]

    def _build(self, go: Path, binary: Path, console: Console) -> None:
        began = time.monotonic()
        binary.parent.mkdir(parents=True, exist_ok=True)
        scratch = binary.with_suffix(".part")
        listing = ["list", "-deps", *self.flags, self.package]
        packages = self._run(go, listing, "go: fetching modules", None, console)
        # -v names each package when it is compiled; those that Go's cache has are not named.
        build = ["build", "-v", *self.flags, "-o", str(scratch), self.package]
        self._run(go, build, "go: compiling packages", packages, console)
        scratch.rename(binary)
        size_mb = binary.stat().st_size / 1e6
        console.print(f"Built in {time.monotonic() - began:.0f} s, {size_mb:.0f} MB.")

    def _run(
        self, go: Path, command: list[str], doing: str, total: int | None, console: Console
    ) -> int:
        """Run Go and show as progress the packages that it prints; how many there were."""
        last = deque[str](maxlen=LAST_LINES)
        count = 0
        columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with (
            subprocess.Popen(
                [go, *command],
                cwd=self.sources,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
            Progress(*columns, console=console) as progress,
        ):
            task = progress.add_task(doing, total=total)
            assert process.stdout
            for line in process.stdout:
                last.append(line)
                if not line.startswith("go: "):  # such as: go: downloading ...
                    count += 1
                    progress.advance(task)
        if process.returncode:
            raise Fatal(
                f"{self.what} could not be built: `{go} {' '.join(command)}` in {self.sources} "
                f"ended with {process.returncode}:\n{''.join(last).strip()}\n{self.advice}"
            )
        return count


_MODULE = ("go.mod", "go.sum")
