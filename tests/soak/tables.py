"""The outcome as tables."""

from collections import Counter

from rich.console import Console
from rich.table import Table
from soak.outcome import JUDGED_FROM_MINUTES, Outcome, Verdict

MB = 1 << 20
_COLOURS = {Verdict.PASSED: "green", Verdict.FAILED: "red", Verdict.INCONCLUSIVE: "yellow"}


def show(console: Console, outcome: Outcome) -> None:
    """Print all results."""
    _show_faults(console, outcome)
    _show_repeats(console, outcome)
    table = Table(title=f"soak of {outcome.minutes:g} minutes, seed {outcome.seed}", box=None)
    table.add_column("")
    table.add_column("", justify="right")
    for name, count in {
        "faults": len(outcome.faults),
        "records": outcome.records,
        "missing": outcome.missing,
        "not copied yet": outcome.behind,
        "reordered": outcome.reordered,
        "doubled": outcome.repeats,
        "doubled, unexplained": outcome.unexplained,
    }.items():
        table.add_row(name, f"{count:,}")
    for name, rss in zip(("middle", "last"), outcome.memory, strict=False):
        table.add_row(f"memory of a driver, {name} third", f"{rss / MB:.1f} MB")
    for name, rest in (("before", outcome.before), ("after", outcome.after)):
        if rest:
            figures = f"{rest.clients} clients, {rest.threads} threads"
            table.add_row(f"all drivers at rest, {name}", figures)
    console.print(table)
    if outcome.minutes < JUDGED_FROM_MINUTES:
        console.print(f"Memory is judged from {JUDGED_FROM_MINUTES} minutes on.")
    for sentence in (*outcome.failures(), *outcome.doubts()):
        console.print(f"- {sentence}", markup=False, soft_wrap=True)
    colour = _COLOURS[outcome.verdict]
    console.print(f"[bold {colour}]{outcome.verdict}[/]")


def _show_faults(console: Console, outcome: Outcome) -> None:
    table = Table(title="faults", box=None)
    table.add_column("fault")
    table.add_column("times", justify="right")
    table.add_column("doubled by it", justify="right")
    doubled = Counter(
        repeat.fault.kind
        for one in outcome.accounts
        for repeat in one.repeats
        if repeat.fault is not None
    )
    for kind, times in Counter(fault.kind for fault in outcome.faults).most_common():
        table.add_row(str(kind), str(times), f"{doubled[kind]:,}")
    console.print(table)


def _show_repeats(console: Console, outcome: Outcome) -> None:
    table = Table(title="behind what records were doubled", box=None)
    table.add_column("doubled", justify="right")
    table.add_column("why", overflow="fold")
    for why, times in outcome.explained().most_common():
        table.add_row(f"{times:,}", why)
    console.print(table)
