"""The program that the tests' cluster runs: Kubernetes and etcd, built once from Go modules."""

import re
import subprocess
import time
from collections import deque
from hashlib import sha256
from pathlib import Path

from cluster.go import environment, find_go, version
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.errors import Fatal
from headrace.toolchain import cache_home
from headrace.toolchain.locks import file_lock

SOURCES = Path(__file__).parent / "binary"
LAST_LINES = 15
"""How much of Go's output a failure shows: errors stand at its end."""


def cluster_binary(console: Console | None = None) -> Path:
    """The program; it is built first when there is none of these sources and this Go.

    It takes minutes then, and ``console`` (default: standard error) says why. Processes that need
    it at once wait for the first of them. Raises Fatal when it cannot be had.
    """
    go = find_go()
    flags = _flags()
    key = sha256(version(go).encode() + " ".join(flags).encode())
    for file in ("main.go", "go.mod", "go.sum"):
        key.update((SOURCES / file).read_bytes())
    binary = cache_home() / "cluster" / key.hexdigest()[:16] / "cluster"
    if not binary.exists():
        console = console or Console(stderr=True)
        console.print(
            "The tests run a real Kubernetes API server. It is compiled here, from its Go modules: "
            "some 5 minutes, 1 GB of downloads and 4 GB of Go's own caches, once. "
            f"Then it lies in {binary.parent}.",
            soft_wrap=True,
        )
        with file_lock(binary.parent.with_suffix(".lock")):
            if not binary.exists():  # another process may have built it meanwhile
                _build(go, flags, binary, console)
    return binary


def _flags() -> list[str]:
    """Flags of ``go build``: a small program that says the version it was made of."""
    kubernetes = re.search(r"(?m)^\s+k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    assert kubernetes
    major, minor = kubernetes[1].removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    facts = {"gitVersion": kubernetes[1], "gitMajor": major, "gitMinor": minor}
    said = " ".join(f"-X {package}.{name}={value}" for name, value in facts.items())
    # grpcnotrace: with gRPC's tracing, Go's linker keeps every method of every type.
    return ["-trimpath", "-buildvcs=false", "-tags=grpcnotrace", f"-ldflags=-s -w {said}"]


def _build(go: Path, flags: list[str], binary: Path, console: Console) -> None:
    began = time.monotonic()
    binary.parent.mkdir(parents=True, exist_ok=True)
    scratch = binary.with_suffix(".part")
    packages = _run(go, ["list", "-deps", "."], "go: fetching modules", None, console)
    # -v names each package when it is compiled; those that Go's cache has are not named.
    build = ["build", "-v", *flags, "-o", str(scratch), "."]
    _run(go, build, "go: compiling packages", packages, console)
    scratch.rename(binary)
    size_mb = binary.stat().st_size / 1e6
    console.print(f"Built in {time.monotonic() - began:.0f} s, {size_mb:.0f} MB.")


def _run(go: Path, command: list[str], doing: str, total: int | None, console: Console) -> int:
    """Run Go and show as progress the packages that it prints; how many there were."""
    last = deque[str](maxlen=LAST_LINES)
    count = 0
    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        subprocess.Popen(
            [go, *command],
            cwd=SOURCES,
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
            f"the tests' API server could not be built: `{go} {' '.join(command)}` in {SOURCES} "
            f"ended with {process.returncode}:\n{''.join(last).strip()}\n"
            "It needs Go's modules (GOPROXY and the proxy variables of the environment say from "
            "where) and 6 GB of disk; `make check` runs the tests that need no API server"
        )
    return count
