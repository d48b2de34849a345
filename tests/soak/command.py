"""Options, folder and exit codes of a soak."""

import argparse
import random
import time
from pathlib import Path

from soak.outcome import Verdict

from headrace.host import state_home

CODES = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 2}
"""Exit code by verdict."""


def parsed(program: str, description: str) -> argparse.Namespace:
    """Return the options of the command line, with a random seed if none was given."""
    parser = argparse.ArgumentParser(prog=program, description=description.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="of faults (default 10)")
    parser.add_argument("--seed", type=int, help="of the faults' random numbers (default: any)")
    parser.add_argument("--rate", type=int, default=400, help="records a second (default 400)")
    parser.add_argument("--folder", type=Path, help="for logs (default: one that is named)")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.randrange(10_000)
    return options


def folder_of(options: argparse.Namespace, kind: str) -> Path:
    """Create and return the folder of a run, which is in a folder of its kind by default."""
    started = time.strftime("%Y%m%d-%H%M%S")
    folder: Path = options.folder or state_home() / kind / f"{started}-seed-{options.seed}"
    folder.mkdir(parents=True)
    return folder
