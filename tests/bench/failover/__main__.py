"""How long planned fail-overs take, and what groups read again or skip, over many of them.

``make bench-failover``. Brokers, flows, commands and consumers are real. After each fail-over, all
records that consumers receive at the new cluster are compared with the expected ones.
"""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from statistics import median, quantiles

from bench.failover.switches import Switched, switches
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headrace import logs
from headrace.errors import GaveUp
from headrace.sandbox import ClusterPlan, Sandbox

_OUT = Path(__file__).parents[3] / "dist" / "bench"


def main() -> int:
    """Measure, and print a table; 1 when a record was read again or skipped."""
    options = _options()
    logs.configure("ERROR")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[numbers]}"),
    )  # fmt: skip
    made: list[Switched] = []
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    with (
        Sandbox.start("bench-failover", plans) as sandbox,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("fail-overs", total=options.switches, numbers="")
        try:
            for one in islice(switches(sandbox, options.groups), options.switches):
                made.append(one)
                numbers = f"{one.seconds:.1f} s, {one.reread} read again, {one.skipped} skipped"
                progress.update(task, completed=len(made), numbers=numbers)
                if not console.is_terminal:
                    console.print(f"{len(made)} of {options.switches}: {numbers}")
        except GaveUp as gave_up:
            console.print(str(gave_up))
    if not made:
        return 1
    found = _figures(made, options.groups)
    _OUT.mkdir(parents=True, exist_ok=True)
    (_OUT / "failover.json").write_text(json.dumps(found, indent=2) + "\n")
    table = Table("switches", "groups", "read again", "skipped", "not exact", "p50 s", "p99 s")
    table.add_row(*(str(value) for value in found.values()))
    console.print(table)
    return 1 if found["reread"] or found["skipped"] or len(made) < options.switches else 0


def _figures(made: list[Switched], groups: int) -> dict[str, float]:
    seconds = [one.seconds for one in made]
    p99 = quantiles(seconds, n=100, method="inclusive")[98] if len(made) > 1 else seconds[0]
    return {
        "switches": len(made),
        "groups": groups,
        "reread": sum(one.reread for one in made),
        "skipped": sum(one.skipped for one in made),
        "inexact": sum(one.inexact for one in made),
        "p50Seconds": round(median(seconds), 1),
        "p99Seconds": round(p99, 1),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.failover", description=__doc__)
    parser.add_argument("--switches", type=int, default=100, help="fail-overs (100)")
    parser.add_argument("--groups", type=int, default=20, help="consumer groups (20)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
