"""The page and the Markdown table that ``headrace test compare-mirrors`` writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.mirror_test import Fault, Result
from headrace.report.side_by_side import Row, SideBySide

_NOT_RUN = "not run"
_KINDS = ("missing", "duplicated", "reordered", "corrupted", "alien")


@dataclass(frozen=True)
class Outcome:
    """One mirror in one experiment."""

    result: Result | None
    """``None``: there is no report."""
    why: str = _NOT_RUN


def mirror_table(
    mirrors: Sequence[str],
    experiments: Mapping[str, Sequence[Outcome]],
    notes: Sequence[str],
) -> SideBySide:
    """A row for each experiment, by its title, with a cell for each mirror."""
    rows = (
        Row(title, tuple(_cell(outcome) for outcome in outcomes))
        for title, outcomes in experiments.items()
    )
    return SideBySide(tuple(mirrors), tuple(rows), tuple(notes))


def markdown(table: SideBySide) -> str:
    """The same as a table for a page of documentation."""
    lines = [("experiment", *table.names), ("---",) * (1 + len(table.names))]
    lines += [(row.title, *row.cells) for row in table.rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return "\n\n".join([text, *table.notes]) + "\n"


def recovery(fault: Fault) -> str:
    """What came of a fault."""
    if fault.at_ms is None:
        return f"not done: {fault.error}"
    if fault.recovery_seconds is None:
        return f"not recovered: {fault.error}"
    return f"recovered in {fault.recovery_seconds:.1f} s"


def _cell(outcome: Outcome) -> str:
    result = outcome.result
    if result is None:
        return outcome.why
    parts = [f"{result.verdict}"]
    if counts := result.counts:
        wrong = [f"{n:,} {kind}" for kind in _KINDS if (n := getattr(counts, kind))]
        parts.append(", ".join(wrong) or f"all {counts.acknowledged:,} there, once, in order")
    if result.faults:
        if result.faults[0].at_ms is None:
            return recovery(result.faults[0])
        parts.append(recovery(result.faults[0]))
    if latency := result.own_latency_ms:
        parts.append(f"own latency {latency.p50:,} / {latency.p99:,} / {latency.max:,} ms")
    return "; ".join(parts)
