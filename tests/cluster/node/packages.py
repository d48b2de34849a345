"""The distribution's programs that a node needs; absent ones are installed."""

import os
import shutil
import subprocess
from pathlib import Path

from rich.console import Console

from headrace.errors import Fatal

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
}
"""A program, and Debian's package that has it."""
PLUGINS = "containernetworking-plugins"
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def have_packages(console: Console) -> None:
    """Install what is absent with apt-get. Raises Fatal when that cannot be."""
    absent = {package for program, package in PACKAGES.items() if not _which(program)}
    if not plugin_folder():
        absent.add(PLUGINS)
    if not absent:
        return
    names = sorted(absent)
    need = f"The node needs {', '.join(names)}"
    if not _which("apt-get"):
        raise Fatal(f"{need}, and here is no apt-get: install them by your distribution's means")
    console.print(f"{need}: apt-get installs that; it stays.", soft_wrap=True)
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]
    install = [*apt, "install", "--yes", "--no-install-recommends", *names]
    done = _run(install)
    if done.returncode:
        _run([*apt, "update"])  # the lists may be old or not there at all
        done = _run(install)
    if done.returncode:
        raise Fatal(f"{need}, and `{' '.join(install)}` failed:\n{done.stderr.strip()}")


def plugin_folder() -> Path | None:
    """Where CNI's plugins are."""
    return next((folder for folder in PLUGIN_FOLDERS if (folder / "bridge").exists()), None)


def _which(program: str) -> str | None:
    return shutil.which(program, path=SEARCHED)


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
