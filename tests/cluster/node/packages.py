"""The distribution's programs that a node needs; absent ones are installed."""

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
"""A program, and Debian's package that has it."""
PLUGINS = "containernetworking-plugins"
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


def have_packages(console: Console) -> None:
    """Install what is absent. Raises Fatal when that cannot be."""
    absent = {package for program, package in PACKAGES.items() if not which(program)}
    if not plugin_folder():
        absent.add(PLUGINS)
    if absent:
        install(absent, f"The node needs {', '.join(sorted(absent))}", console)


def plugin_folder() -> Path | None:
    """Where CNI's plugins are."""
    return next((folder for folder in PLUGIN_FOLDERS if (folder / "bridge").exists()), None)
