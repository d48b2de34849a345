"""Compiles the hot path in C, where this machine has a C compiler: nothing needs it."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = "operator/headrace/kafka/wire"
_OPTIONS = ("-O2", "-shared", "-fPIC")


def compiler() -> list[str]:
    """Return the command of the C compiler: ``CC``, else ``cc``, else ziglang's ``cc``."""
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    if shutil.which("cc") is None and find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return ["cc"]


def compile_helper(source: Path, library: Path) -> str:
    """Compile the library; return the reason if that fails, otherwise an empty string."""
    command = [*compiler(), *_OPTIONS, "-o", str(library), str(source)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        return f"no C compiler: {error}"
    return done.stderr.strip() or "the compiler failed" if done.returncode else ""


class Helper(BuildHookInterface[Any]):
    """Build hook that compiles the helper in C for wheels and editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the helper before the files of a build are collected."""
        folder = Path(self.root, _FOLDER)
        if why := compile_helper(folder / "native.c", folder / "libheadrace_native.so"):
            print(f"headrace without its hot path in C: {why}", file=sys.stderr)  # noqa: T201
            return
        build_data["artifacts"].append(f"/{_FOLDER}/libheadrace_native.so")
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
