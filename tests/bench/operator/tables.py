"""The figures as tables, and the messages of a running measurement."""

from collections.abc import Sequence
from statistics import median

from bench.operator.figures import Loss, ManyFlows, OneFlow, Seen
from rich.console import Console
from rich.table import Table

MB = 1 << 20


def show_many(console: Console, result: ManyFlows) -> None:
    """Scene 1."""
    title = f"{result.flows:,} flows x {result.tasks} tasks: seconds from apply to Ready"
    table = _table(title, "", *DISTRIBUTION)
    table.add_row("of a flow", *_distribution(result.ready_s))
    console.print(table)
    show_windows(console, f"{result.flows:,} flows: the operator", result.windows)


def show_one(console: Console, result: OneFlow) -> None:
    """Print the tables of scenes 2 and 3."""
    size = f"{result.tasks:,} tasks x {result.drivers} drivers"
    console.print(f"{size}: Ready {result.ready_s:.1f} s after it was applied")
    show_windows(console, f"{size}: the operator", result.windows)
    title = f"{size}: one driver lost, seconds until all its units are claimed elsewhere"
    table = _table(
        title, "lost", "what", *DISTRIBUTION, "units it had", "others moved", "to newcomer"
    )
    for had_connector in (False, True):
        for variant in dict.fromkeys(loss.variant for loss in result.losses):
            chosen = [
                loss
                for loss in result.losses
                if (loss.variant, loss.had_connector) == (variant, had_connector)
            ]
            _add_losses(table, variant + ", with connector" * had_connector, chosen)
    console.print(table)
    title = f"{size}: API server restarted, seconds from when it was ready again"
    columns = ("ended by", "away", "units seen", "flows seen", "units moved", "claims")
    table = _table(title, *columns)
    for restart in result.restarts:
        times = (restart.away_s, restart.unit_s, restart.flow_s)
        counts = (restart.moved, restart.claims)
        table.add_row(restart.how, *(f"{time:.1f}" for time in times), *map(str, counts))
    console.print(table)


def show_windows(console: Console, title: str, windows: dict[str, Seen]) -> None:
    """Print the operator's work and costs in each window."""
    columns = ("reconciles", "ms median", "max", "reads", "watches", "writes")
    cost = ("CPU s", "of a core", "RSS MB", "loop p99 ms", "max")
    table = _table(title, "window", "s", *columns, *cost)
    for name, seen in windows.items():
        took, answers = seen.reconciles_ms, sorted(seen.answers_ms)
        table.add_row(
            name,
            f"{seen.seconds:.0f}",
            f"{len(took):,}",
            f"{median(took):,.0f}" if took else "-",
            f"{max(took):,}" if took else "-",
            f"{seen.reads:,}",
            f"{seen.watches:,}",
            f"{seen.writes.total():,}",
            f"{seen.cpu_s:.1f}",
            f"{seen.cpu_s / seen.seconds:.1%}",
            f"{seen.rss[0] / MB:.0f} to {max(seen.rss) / MB:.0f}",
            f"{_percentile(answers, 0.99):,.0f}",
            f"{answers[-1]:,.0f}",
        )
    console.print(table)
    for name, seen in windows.items():
        calls = [f"{count:,} {verb} {what}" for (verb, what), count in seen.calls.most_common()]
        console.print(f"{name}: {', '.join(calls) or 'no calls'}")


def _add_losses(table: Table, variant: str, losses: Sequence[Loss]) -> None:
    if not losses:
        return
    parts = {
        "all": [loss.claimed_s for loss in losses],
        "detection": [loss.detected_s for loss in losses],
        "move": [loss.claimed_s - loss.detected_s for loss in losses],
    }
    for name, seconds in parts.items():
        counts: tuple[str, ...] = ("", "", "")
        if name == "all":
            counts = tuple(
                _span(counts)
                for counts in zip(
                    *((one.units, one.beyond, one.filled) for one in losses), strict=True
                )
            )
        table.add_row(variant if name == "all" else "", name, *_distribution(seconds), *counts)


DISTRIBUTION = ("of", "min", "median", "p90", "max")


def _distribution(seconds: Sequence[float]) -> list[str]:
    ordered = sorted(seconds)
    shown = (ordered[0], median(ordered), _percentile(ordered, 0.9), ordered[-1])
    return [str(len(ordered)), *(f"{figure:.2f}" for figure in shown)]


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        is_text = column in ("", "lost", "what", "window", "ended by")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    return table
