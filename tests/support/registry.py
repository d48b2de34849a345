"""An OCI registry on this machine, built once: go-containerregistry's, kept in memory."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cluster.build import FLAGS, PROXIES
from cluster.program import Module, Program

from headrace.host import spawn

REGISTRY = Program(
    "registry",
    "an OCI registry",
    Module(
        Path(__file__).parents[1] / "cluster" / "registry",
        (*FLAGS, "-ldflags=-s -w"),
        "10 MB of downloads and 200 MB of Go's own caches",
    ),
    "github.com/google/go-containerregistry/cmd/registry",
    1,
    PROXIES,
)


@cache
def registry_binary() -> Path:
    """Return the program that ``Program.get`` finds. Raises Fatal if it is not available."""
    return REGISTRY.get()


@contextmanager
def running_registry() -> Iterator[str]:
    """Yield the registry's host and port, while the block lasts."""
    process = spawn(
        [registry_binary(), "-port=0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr
        first = process.stderr.readline().decode()
        port = re.search(r"serving on port (\d+)", first)
        assert port, f"the registry says {first!r}"
        yield f"localhost:{port[1]}"
    finally:
        process.kill()
        process.wait()
