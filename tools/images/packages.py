"""Debian packages that are needed, and installed where that can be done."""

import os
import shutil
import subprocess

from rich.console import Console

from headrace.errors import Fatal

CONSOLE = Console(stderr=True, highlight=False, soft_wrap=True)


def need(program: str, why: str) -> None:
    """Have ``program``: it is there, or root installs the Debian package of its name.

    Raises Fatal where neither is so.
    """
    if shutil.which(program):
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise Fatal(f"{why}, and there is no {program} here: install it, or start Docker")
    CONSOLE.print(f"{why[0].upper()}{why[1:]}: installing Debian's package {program}")
    quiet = ["-qq", "-o", "Dpkg::Use-Pty=0"]
    for command in (["update"], ["install", "-y", "--no-install-recommends", program]):
        done = subprocess.run(["apt-get", *quiet, *command], check=False)
        if done.returncode:
            raise Fatal(f"apt-get {command[0]} failed; the reason is above")
