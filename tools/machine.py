"""Needs of images and the tests' cluster: a Docker engine, Debian's packages."""

import os
import shutil
import subprocess
from collections.abc import Iterable

from rich.console import Console

from headrace.errors import Fatal

SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def which(program: str) -> str | None:
    """Return the path of a program, including programs that only root has on PATH."""
    return shutil.which(program, path=SEARCHED)


def answering_docker() -> str | None:
    """Return the path of Docker's client (``DOCKER``, else by PATH) if its engine answers."""
    docker = shutil.which(os.environ.get("DOCKER") or "docker")
    if docker and subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return None
    return docker


def install(packages: Iterable[str], need: str, console: Console) -> None:
    """Install Debian's packages; ``need`` is the reason in messages. Raises Fatal if that fails."""
    names = sorted(packages)
    if not which("apt-get") or os.geteuid() != 0:
        raise Fatal(
            f"{need}, and only root can have apt-get install {', '.join(names)} here: install that "
            "by your distribution's means"
        )
    console.print(f"{need}: apt-get installs {', '.join(names)}; it stays.", soft_wrap=True)
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]
    wanted = [*apt, "install", "--yes", "--no-install-recommends", *names]
    done = _run(wanted)
    if done.returncode:
        _run([*apt, "update"])  # the lists may be old or not there at all
        done = _run(wanted)
    if done.returncode:
        raise Fatal(f"{need}, and `{' '.join(wanted)}` failed:\n{done.stderr.strip()}")


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
