"""Programs of the distribution that a node needs. Missing ones are installed."""

from pathlib import Path

from machine import install, which
from rich.console import Console

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
}
"""Debian package of each program."""
PLUGINS = "containernetworking-plugins"
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


def have_packages(console: Console) -> None:
    """Install missing packages.

    Raises Fatal if that is impossible.
    """
    absent = {package for program, package in PACKAGES.items() if not which(program)}
    if not plugin_folder():
        absent.add(PLUGINS)
    if absent:
        install(absent, f"The node needs {', '.join(sorted(absent))}", console)


def plugin_folder() -> Path | None:
    """Return the folder of the CNI plug-ins."""
    return next((folder for folder in PLUGIN_FOLDERS if (folder / "bridge").exists()), None)
