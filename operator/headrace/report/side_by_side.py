"""Several results beside each other: what ``headrace test compare`` shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from jinja2 import Environment, PackageLoader, StrictUndefined

from headrace.mirror_test import Fault, Kind, Result

_KINDS = (
    *(Kind.MISSING, Kind.DUPLICATED, Kind.REORDERED, Kind.CORRUPTED),
    *(Kind.ALIEN, Kind.REPLAYED),
)
_NOTHING = "-"


@dataclass(frozen=True)
class Row:
    """One figure of all results."""

    title: str
    cells: tuple[str, ...]
    """In the order of the results; a dash where a result has none."""


@dataclass(frozen=True)
class SideBySide:
    """A column for each result."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """In what the tests differ: figures of different loads say little beside each other."""


def side_by_side(results: Mapping[str, Result]) -> SideBySide:
    """The table of these results, by their names."""
    everyone = tuple(results.values())
    return SideBySide(tuple(results), tuple(_rows(everyone)), tuple(_notes(everyone)))


def page(table: SideBySide) -> str:
    """The same as a page, self-contained."""
    environment = Environment(
        loader=PackageLoader("headrace.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("side_by_side.html.j2").render(table=table)


def _rows(results: tuple[Result, ...]) -> Iterator[Row]:
    figures = [_figures(result) for result in results]
    longest = max(figures, key=len)
    for title in dict.fromkeys([*longest, *chain(*figures)]):
        yield Row(title, tuple(of_one.get(title, _NOTHING) for of_one in figures))


def _figures(result: Result) -> dict[str, str]:
    """By their titles, those that this result has."""
    found = {
        "verdict": str(result.verdict),
        "mirror": f"flow {result.flow}" if result.flow else "another",
    }
    if counts := result.counts:
        found["messages"] = f"{counts.acknowledged:,}"
        found |= {str(kind): f"{getattr(counts, kind):,}" for kind in _KINDS}
        if counts.unequal_offsets is not None:
            found[str(Kind.UNEQUAL_OFFSETS)] = f"{counts.unequal_offsets:,}"
        found["lost by the source"] = f"{counts.source_lost:,}"
    if result.acknowledged_per_second is not None:
        found["messages/s acknowledged"] = f"{result.acknowledged_per_second:,.0f}"
    if latency := result.latency_ms:
        found |= {
            "latency, 50 %": f"{latency.p50:,} ms",
            "latency, 99 %": f"{latency.p99:,} ms",
            "latency, 99.9 %": f"{latency.p999:,} ms",
            "latency, slowest": f"{latency.max:,} ms",
        }
    if own := result.own_latency_ms:
        found |= {
            "the mirror's own share, 50 %": f"{own.p50:,} ms",
            "the mirror's own share, 99 %": f"{own.p99:,} ms",
        }
    if result.points:
        found["most messages on the way"] = f"{max(p.behind for p in result.points):,}"
    for number, fault in enumerate(result.faults, 1):
        found[f"recovery {number}"] = f"{fault.step.action}: {_recovery(fault)}"
    return found | {"run": result.run, "headrace": result.versions.get("headrace", _NOTHING)}


def _recovery(fault: Fault) -> str:
    if fault.recovery_seconds is None:
        return "not done" if fault.at_ms is None else "not seen"
    return f"{fault.recovery_seconds:.1f} s"


def _notes(results: tuple[Result, ...]) -> Iterator[str]:
    first, *others = (_settings(result) for result in results)
    differ = [name for name in first if any(other[name] != first[name] for other in others)]
    if differ:
        yield f"The tests differ in {', '.join(differ)}."


def _settings(result: Result) -> dict[str, object]:
    spec = result.test.spec
    load = spec.load.model_dump(by_alias=True, exclude={"names"})
    return {
        **{f"load.{name}": value for name, value in load.items()},
        "partitioning": spec.partitioning,
        "settleSeconds": spec.settle_seconds,
        "budgets": spec.budgets,
        "chaos": tuple(fault.step for fault in result.faults),
    }
