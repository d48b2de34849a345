"""Programs of the tests, compiled once from Go modules and kept in the user's cache."""

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cluster.go import environment, find_go, version
from progress import progress
from rich.console import Console

from headrace.errors import Fatal
from headrace.host import cache_home, file_lock

LAST_LINES = 15
"""Number of lines of Go's output in an error message. Errors are at its end."""

FEW_COLLECTIONS = {"GOGC": "off", "GOMEMLIMIT": "2GiB"}
"""Go's compiler needs a quarter less time if it collects garbage only when memory is short."""


@dataclass(frozen=True)
class Module:
    """Go module whose programs are built together, so that shared packages are compiled once."""

    sources: Path
    """Folder of the module. Its go.sum pins all downloads."""
    flags: tuple[str, ...]
    """Flags of ``go build``."""
    size: str
    """Size of its downloads and of Go's own caches, as displayed to users."""


@dataclass(frozen=True)
class Program:
    """Program, with the texts that are displayed while it is built or if the build fails."""

    name: str
    """Last part of ``package``, which Go uses as the program's name."""
    what: str
    """Name of the program in the tests, such as ``the tests' API server``."""
    module: Module
    package: str
    """Go package of this module or of one that it requires."""
    minutes: float
    """Minutes that its compilation takes on two cores, after the programs listed before it."""
    advice: str
    """Requirements of the program, and commands that work without it."""

    def get(self, console: Console | None = None) -> Path:
        """Return the program, built first if none matches these sources and this Go.

        ``have_programs`` describes the build. Raises Fatal if the program cannot be built.
        """
        have_programs((self,), console)
        return self.path(find_go())

    def path(self, go: Path) -> Path:
        """Return the file of the program as this Go builds it; it may be absent."""
        key = sha256(version(go).encode() + " ".join(self.module.flags).encode())
        own = sorted((self.module.sources / self.package).glob("*.go"))
        for file in (*own, *map(self.module.sources.joinpath, ("go.mod", "go.sum"))):
            key.update(file.read_bytes())
        return cache_home() / self.name / key.hexdigest()[:16] / self.name


def have_programs(programs: Iterable[Program], console: Console | None = None) -> None:
    """Build missing programs, with one ``go build`` for each module.

    A build takes minutes, and ``console`` (default: standard error) shows its reason and its
    progress. Other processes that need a program at the same time wait for the first. Raises Fatal
    if a program cannot be built.
    """
    wanted, go = list(programs), find_go()
    console = console or Console(stderr=True)

    def absent(module: Module) -> list[Program]:
        return [one for one in wanted if one.module == module and not one.path(go).exists()]

    for module in dict.fromkeys(one.module for one in wanted):
        if absent(module):
            with file_lock(cache_home() / f"{module.sources.name}.lock"):
                if missing := absent(module):  # another process may have built it in the meantime
                    _build(go, module, missing, console)


def _build(go: Path, module: Module, programs: Sequence[Program], console: Console) -> None:
    minutes = sum(one.minutes for one in programs)
    long = f"some {minutes:.0f} minutes" if minutes > 1 else "a minute at most"
    console.print(
        f"Go compiles {_names(programs)}, from Go modules: {long} on two cores "
        f"that do nothing else, up to {module.size}, once. They are kept in {cache_home()}.",
        soft_wrap=True,
        highlight=False,
    )
    scratch = cache_home() / f"{module.sources.name}.part"
    shutil.rmtree(scratch, ignore_errors=True)  # left by a process that was killed
    packages = [one.package for one in programs]
    with progress(console, "go: modules") as report:
        total = _run(
            [go, "list", "-deps", *module.flags, *packages],
            *(programs, lambda count, fetched: report(_found(count, fetched))),
        )
    with progress(console, "go: compilation") as report:
        # -v names each package that is compiled, but not packages in Go's cache.
        _run(
            [go, "build", "-v", *module.flags, "-o", f"{scratch}{os.sep}", *packages],
            *(programs, lambda count, _: report(f"{count} of {total} packages")),
        )
    for one in programs:
        path = one.path(go)
        path.parent.mkdir(parents=True, exist_ok=True)
        (scratch / one.name).rename(path)
    shutil.rmtree(scratch)


def _run(
    command: Sequence[str | Path], programs: Sequence[Program], report: Callable[[int, int], None]
) -> int:
    """Run Go, report the packages that it printed and the modules that it fetched as it runs.

    Returns the number of packages.
    """
    last, folder = deque[str](maxlen=LAST_LINES), programs[0].module.sources
    count = fetched = 0
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(), **FEW_COLLECTIONS},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            last.append(line)
            fetched += line.startswith("go: downloading ")
            count += not line.startswith("go: ")
            report(count, fetched)
    if process.returncode:
        raise Fatal(
            f"{_names(programs)} could not be built: `{' '.join(map(str, command))}` in {folder} "
            f"ended with {process.returncode}:\n{''.join(last).strip()}\n"
            + "; ".join(dict.fromkeys(one.advice for one in programs))
        )
    return count


def _found(packages: int, fetched: int) -> str:
    """Return a progress message. Go lists packages only after it has fetched all modules."""
    return f"{packages} packages found" if packages else f"modules downloaded: {fetched}"


def _names(programs: Sequence[Program]) -> str:
    return ", ".join(one.what for one in programs)
