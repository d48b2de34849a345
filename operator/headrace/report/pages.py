"""Pages of reports: one mirror test, or several side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from headrace.mirror_test import Counts, Fault, FindingType, Result, TopicAudit, allowed_counts
from headrace.report import plots
from headrace.report.plots import Drawing

_GLOSSES = {
    FindingType.MISSING: "acknowledged by the source, not on the target",
    FindingType.DUPLICATED: "copies on the target after the first",
    FindingType.REORDERED: "first arrived after a later message of its topic, producer and key",
    FindingType.CORRUPTED: "key, value, headers, timestamp, partition or topic differs",
    FindingType.ALIEN: "on the target under this run's name, but never sent",
    FindingType.UNEQUAL_OFFSETS: "copies at another offset than on the source",
    FindingType.REPLAYED: "of an earlier run, arrived on the target during this run",
    FindingType.UNACKNOWLEDGED: "on the source without an acknowledgement; the mirror may copy it",
    FindingType.UNMANIFESTED: "on the source under this run's name, not in its manifest",
    FindingType.SOURCE_LOST: "acknowledged by the source, and no longer on it",
}

_AUDIT_GLOSSES = {
    FindingType.MISSING: "on the source, not on the target",
    FindingType.DUPLICATED: "copies on the target after the first",
    FindingType.REORDERED: "records that have to move for the order of the source",
    FindingType.CORRUPTED: "key, value, headers, timestamp, partition or topic differs",
    FindingType.ALIEN: "on the target, not on the source",
}
"""Explanations of the finding types of an audit, which compares applications' records."""

_ON_SOURCE = {
    FindingType.MISSING,
    FindingType.UNACKNOWLEDGED,
    FindingType.UNMANIFESTED,
    FindingType.SOURCE_LOST,
}
"""Finding types whose examples have a position on the source."""
_CHANGED = {FindingType.CORRUPTED, FindingType.UNEQUAL_OFFSETS}
"""Finding types whose examples contain expected and actual values."""


@dataclass(frozen=True)
class Line:
    """Row of the table of counts, for one finding type."""

    kind: FindingType
    gloss: str
    count: int
    allowed: int | None
    """Maximum count, or None for any number."""
    judged: bool
    """True if the test has a budget for this type, even one that allows any number."""

    @property
    def good(self) -> bool:
        """True if the count is within its budget."""
        return self.allowed is None or self.count <= self.allowed


def page(result: Result) -> str:
    """Return the page of a result."""
    return _template().render(
        result=result,
        lines=_lines(result, result.counts) if result.counts else [],
        drawings=_drawings(result),
        manifest=_manifest(result),
        allowed=_allowed(result),
        of_source=_ON_SOURCE,
        changed=_CHANGED,
    )


@cache
def _template() -> Template:
    """Return the compiled template of the page."""
    environment = Environment(
        loader=PackageLoader("headrace.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": _clock,
        "seconds": _seconds,
        "size": _size,
        "differences": _differences,
    }
    return environment.get_template("report.html.j2")


def _lines(result: Result, counts: Counts) -> list[Line]:
    is_audit = result.test.spec.audit is not None
    glosses = _AUDIT_GLOSSES if is_audit else _GLOSSES
    lines = [
        Line(kind, glosses[kind], getattr(counts, kind.field) or 0, most, judged=True)
        for kind, most in allowed_counts(result.test.spec.budgets).items()
        if kind in glosses
    ]
    of_the_source = {
        FindingType.UNACKNOWLEDGED: counts.unacknowledged,
        FindingType.UNMANIFESTED: counts.unmanifested,
        FindingType.SOURCE_LOST: counts.source_lost,
    }
    return lines + [
        Line(kind, _GLOSSES[kind], count, None, judged=False)
        for kind, count in of_the_source.items()
        if count
    ]


def _allowed(result: Result) -> list[tuple[str, str]]:
    """Return the titles and texts of the test's requirements."""
    spec = result.test.spec
    budgets = spec.budgets
    is_audit = spec.audit is not None
    order = (
        {
            "Preserved": "each record in its partition, in the order of the partition",
            "ByKey": "every record, in any partition",
            "Any": "every record, in any partition",
        }
        if is_audit
        else {
            "Preserved": "each message in its partition, in the order of its key",
            "ByKey": "all messages of a key in one partition, in their order",
            "Any": "every message, in any partition",
        }
    )
    limits = [
        f"{kind} {'any number' if most is None else f'{most:,}'}"
        for kind, most in allowed_counts(budgets).items()
        if not is_audit or kind in _AUDIT_GLOSSES
    ]
    since = "the beginning of the audit" if is_audit else "the last message"
    found = [
        ("Content", "key, value, headers and timestamp as on the source"),
        ("Place and order", f"{spec.partitioning}: {order[spec.partitioning]}"),
        ("Complete", f"within {spec.settle_seconds:,} s of {since}"),
        ("Allowed", ", ".join(limits)),
    ]
    if budgets.latency_p99_ms is not None:
        found.append(("Latency", f"99 % within {budgets.latency_p99_ms:,} ms"))
    if budgets.recovery_seconds is not None:
        found.append(("Recovery", f"within {budgets.recovery_seconds:,} s of each fault"))
    if spec.audit and spec.audit.schemas:
        found.append(("Schema ids", f"at most {budgets.undecodable:,} that nobody can decode"))
    if result.rehearsal is not None:
        again, skipped = budgets.reread_per_group, budgets.skipped
        found.append(
            ("Fail-over", f"delivered again {again:,} a group, skipped {skipped:,} by all groups")
        )
    return found


def _drawings(result: Result) -> dict[str, Drawing]:
    """Return the plots by title."""
    drawings: dict[str, Drawing] = {}
    if result.points and result.started_ms is not None:
        over_time = (result.points, result.faults, result.started_ms)
        drawings["Throughput"] = plots.throughput(*over_time)
        drawings["In flight"] = plots.backlog(*over_time)
        if result.latency_ms:
            drawings["Latency over time"] = plots.latency_over_time(*over_time)
    if result.latency_ms:
        drawings["Latency of all messages"] = plots.histogram(result.latency_ms)
    return drawings


def _manifest(result: Result) -> str:
    """Return the resolved test as YAML without defaults."""
    document = result.test.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    kind = {"apiVersion": result.test.api_version, "kind": result.test.kind}
    return yaml.safe_dump(kind | document, sort_keys=False, allow_unicode=True)


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(duration_ms: float) -> str:
    return f"{duration_ms / 1000:,.1f} s"


def _size(size_bytes: int) -> str:
    """Return a size with three significant digits."""
    value, units = float(size_bytes), ["TB", "GB", "MB", "kB"]
    if size_bytes < 1000:
        return f"{size_bytes} B"
    unit = ""
    while value >= 1000 and units:
        value, unit = value / 1000, units.pop()
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def _differences(topic: TopicAudit) -> str:
    """Return the numbers of differences of a topic by their types."""
    found = {str(kind): getattr(topic, kind.field) for kind in _AUDIT_GLOSSES}
    return ", ".join(f"{n:,}\N{NO-BREAK SPACE}{kind}" for kind, n in found.items() if n) or "none"


_KINDS = (
    *(FindingType.MISSING, FindingType.DUPLICATED, FindingType.REORDERED, FindingType.CORRUPTED),
    *(FindingType.ALIEN, FindingType.REPLAYED),
)
_NOTHING = "-"


@dataclass(frozen=True)
class Row:
    """Row of a table: one quantity, with its value in each result."""

    title: str
    cells: tuple[str, ...]
    """Cells in the order of the results. A cell is a dash if its result has no value."""


@dataclass(frozen=True)
class SideBySide:
    """Table with a column for each result."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """Differences between the tests that make their figures hard to compare."""


def side_by_side(results: Mapping[str, Result]) -> SideBySide:
    """Return a table that compares the results. ``results`` are by column name."""
    everyone = tuple(results.values())
    return SideBySide(tuple(results), tuple(_rows(everyone)), tuple(_notes(everyone)))


def side_by_side_page(table: SideBySide) -> str:
    """Return a table as a self-contained page."""
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
    """Return the figures of a result by their titles."""
    found = {
        "verdict": str(result.verdict),
        "mirror": f"flow {result.flow}" if result.flow else "another",
    }
    if counts := result.counts:
        found["messages"] = f"{counts.acknowledged:,}"
        found |= {str(kind): f"{getattr(counts, kind):,}" for kind in _KINDS}
        if counts.unequal_offsets is not None:
            found[str(FindingType.UNEQUAL_OFFSETS)] = f"{counts.unequal_offsets:,}"
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
        found["maximum of messages in flight"] = f"{max(p.behind for p in result.points):,}"
    for number, fault in enumerate(result.faults, 1):
        found[f"recovery {number}"] = f"{fault.step.action}: {_recovery(fault)}"
    return found | {"run": result.run, "headrace": result.versions.get("headrace", _NOTHING)}


def _recovery(fault: Fault) -> str:
    if fault.recovery_seconds is None:
        return "not injected" if fault.at_ms is None else "not observed"
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


_NOT_RUN = "not run"
_TABLE_KINDS = ("missing", "duplicated", "reordered", "corrupted", "alien")


@dataclass(frozen=True)
class ExperimentResult:
    """Result of one mirror in one experiment."""

    result: Result | None
    """Result, or None if there is no report."""
    why: str = _NOT_RUN


def mirror_table(
    mirrors: Sequence[str],
    experiments: Mapping[str, Sequence[ExperimentResult]],
    notes: Sequence[str],
) -> SideBySide:
    """Return a table with a row for each experiment and a cell for each mirror.

    ``experiments`` maps the title of each row to its results, one for each mirror.
    """
    rows = (
        Row(title, tuple(_cell(outcome) for outcome in outcomes))
        for title, outcomes in experiments.items()
    )
    return SideBySide(tuple(mirrors), tuple(rows), tuple(notes))


def markdown(table: SideBySide) -> str:
    """Return a table in Markdown."""
    lines = [("experiment", *table.names), ("---",) * (1 + len(table.names))]
    lines += [(row.title, *row.cells) for row in table.rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return "\n\n".join([text, *table.notes]) + "\n"


def recovery(fault: Fault) -> str:
    """Describe the outcome of a fault."""
    if fault.at_ms is None:
        return f"not injected: {fault.error}"
    if fault.recovery_seconds is None:
        return f"not recovered: {fault.error}"
    return f"recovered in {fault.recovery_seconds:.1f} s"


def _cell(outcome: ExperimentResult) -> str:
    result = outcome.result
    if result is None:
        return outcome.why
    parts = [f"{result.verdict}"]
    if counts := result.counts:
        wrong = [f"{n:,} {kind}" for kind in _TABLE_KINDS if (n := getattr(counts, kind))]
        parts.append(", ".join(wrong) or f"all {counts.acknowledged:,} arrived, once, in order")
    if result.faults:
        if result.faults[0].at_ms is None:
            return recovery(result.faults[0])
        parts.append(recovery(result.faults[0]))
    if latency := result.own_latency_ms:
        parts.append(f"own latency {latency.p50:,} / {latency.p99:,} / {latency.max:,} ms")
    return "; ".join(parts)
