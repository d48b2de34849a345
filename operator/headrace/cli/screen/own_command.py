"""How to call headrace again: for commands that are printed to be copied."""

import shutil
import sys
from pathlib import Path


def own_command() -> str:
    """``headrace`` where the shell finds this one by its name, else its path."""
    script = Path(sys.executable).parent / "headrace"
    if shutil.which("headrace") == str(script):
        return "headrace"
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)
