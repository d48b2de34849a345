"""How the operator does with many flows, with a large one, and when its API server is unreachable.

``make bench-operator``. The API server, its controllers and the operator are real; drivers are
simulated (``drivers.py``). No figure is compared with a limit: all processes share this machine's
cores, the API server first of all. Without options a small trial runs; ``--full`` measures the
published figures.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.operator.many_flows import many_flows
from bench.operator.one_flow import one_flow
from bench.operator.stage import Say, staged
from bench.operator.tables import show_many, show_one
from rich.console import Console

from headrace import logs
from headrace.errors import GaveUp

SIZES = {
    "flows": (5, 200, "flows of the first scene"),
    "flow-tasks": (20, 20, "source tasks of each of them"),
    "seconds": (10, 60, "at rest, and of churn"),
    "tasks": (100, 10_000, "source tasks of the one flow of the second scene"),
    "drivers": (5, 100, "its drivers"),
    "runs": (2, 20, "drivers lost, of each variant"),
    "restarts": (2, 4, "of the API server"),
}
"""Size of a trial, size of the full run, and a description."""


def main() -> int:
    """Measure, and print tables; 1 when the operator did not get through."""
    options = _options()
    logs.configure("ERROR")
    console = Console(width=None if sys.stdout.isatty() else 180)
    got_through = True
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        try:
            asyncio.run(_measure(options, Path(folder), console))
        except* GaveUp as group:
            for error in group.exceptions:
                print(error, file=sys.stderr)
            got_through = False
    return 0 if got_through else 1


async def _measure(options: argparse.Namespace, folder: Path, console: Console) -> None:
    with console.status("") as status:
        say = _say(console, status.update)
        if options.flows:
            async with staged(folder / "many", say) as stage:
                many = await many_flows(stage, options.flows, options.flow_tasks, options.seconds)
            show_many(console, many)
        if options.tasks:
            async with staged(folder / "one", say) as stage:
                one = await one_flow(
                    stage,
                    options.tasks,
                    options.drivers,
                    options.runs,
                    restarts=options.restarts,
                    seconds=options.seconds,
                )
            show_one(console, one)


def _say(console: Console, update: Say) -> Say:
    began = time.monotonic()

    def say(what: str) -> None:
        line = f"{time.monotonic() - began:6.0f} s  {what}"
        if console.is_terminal:
            update(line)
        else:
            print(line, file=sys.stderr, flush=True)

    return say


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.operator", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--full", action="store_true", help="the sizes that are published")
    for name, (trial, full, what) in SIZES.items():
        sizes = f"default {trial}, with --full {full}; 0: none"
        parser.add_argument(f"--{name}", type=int, help=f"{what} ({sizes})")
    options = parser.parse_args()
    chosen = vars(options)
    for name, (trial, full, _) in SIZES.items():
        attribute = name.replace("-", "_")
        if chosen[attribute] is None:
            chosen[attribute] = full if options.full else trial
    return options


if __name__ == "__main__":
    sys.exit(main())
