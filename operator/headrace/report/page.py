"""``report.html``: one self-contained file, to read on a screen, light or dark, and on paper."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from headrace.mirror_test import Counts, Kind, Result, allowed_counts
from headrace.report import plots
from headrace.report.drawing import Drawing

_GLOSSES = {
    Kind.MISSING: "acknowledged by the source, not on the target",
    Kind.DUPLICATED: "copies on the target after the first",
    Kind.REORDERED: "first arrived behind a later message of its topic, producer and key",
    Kind.CORRUPTED: "key, value, headers, timestamp, partition or topic not as on the source",
    Kind.ALIEN: "on the target under this run's name, sent by nobody",
    Kind.UNEQUAL_OFFSETS: "copies at another offset than on the source",
    Kind.REPLAYED: "of an earlier run, came to the target while this one ran",
    Kind.UNACKNOWLEDGED: "on the source, its acknowledgement never came; the mirror may carry it",
    Kind.UNMANIFESTED: "on the source under this run's name, not in its manifest",
    Kind.SOURCE_LOST: "acknowledged by the source and no longer there",
}


_ON_SOURCE = {Kind.MISSING, Kind.UNACKNOWLEDGED, Kind.UNMANIFESTED, Kind.SOURCE_LOST}
"""Classes of which a record's place is one of the source."""
_CHANGED = {Kind.CORRUPTED, Kind.UNEQUAL_OFFSETS}
"""Classes of which the examples have what was expected and found."""


@dataclass(frozen=True)
class Line:
    """One class of records in the table of counts."""

    kind: Kind
    gloss: str
    count: int
    allowed: int | None
    """``None``: any number."""
    judged: bool
    """Whether there is a limit at all, that is: whether the mirror answers for it."""

    @property
    def good(self) -> bool:
        """Within what the test allows."""
        return self.allowed is None or self.count <= self.allowed


def page(result: Result) -> str:
    """The page of a result; made from ``report.json`` alone."""
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
    """Return the template, compiled once."""
    environment = Environment(
        loader=PackageLoader("headrace.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clock": _clock, "seconds": _seconds}
    return environment.get_template("report.html.j2")


def _lines(result: Result, counts: Counts) -> list[Line]:
    lines = [
        Line(kind, _GLOSSES[kind], getattr(counts, kind.field) or 0, most, judged=True)
        for kind, most in allowed_counts(result.test.spec.budgets).items()
    ]
    of_the_source = {
        Kind.UNACKNOWLEDGED: counts.unacknowledged,
        Kind.UNMANIFESTED: counts.unmanifested,
        Kind.SOURCE_LOST: counts.source_lost,
    }
    return lines + [
        Line(kind, _GLOSSES[kind], count, None, judged=False)
        for kind, count in of_the_source.items()
        if count
    ]


def _allowed(result: Result) -> list[tuple[str, str]]:
    """What the mirror had to keep, and by when."""
    spec = result.test.spec
    budgets = spec.budgets
    order = {
        "Preserved": "each message in its partition, in the order of its key",
        "ByKey": "all messages of a key in one partition, in their order",
        "Any": "every message, in any partition",
    }
    limits = [
        f"{kind} {'any number' if most is None else f'{most:,}'}"
        for kind, most in allowed_counts(budgets).items()
    ]
    found = [
        ("Content", "key, value, headers and timestamp as on the source"),
        ("Place and order", f"{spec.partitioning}: {order[spec.partitioning]}"),
        ("Complete", f"within {spec.settle_seconds:,} s of the last message"),
        ("Allowed", ", ".join(limits)),
    ]
    if budgets.latency_p99_ms is not None:
        found.append(("Latency", f"99 % within {budgets.latency_p99_ms:,} ms"))
    if budgets.recovery_seconds is not None:
        found.append(("Recovery", f"within {budgets.recovery_seconds:,} s of each fault"))
    if result.rehearsal is not None:
        again, skipped = budgets.reread_per_group, budgets.skipped
        found.append(
            ("Fail-over", f"delivered again {again:,} a group, skipped {skipped:,} by all groups")
        )
    return found


def _drawings(result: Result) -> dict[str, Drawing]:
    """By title."""
    drawings: dict[str, Drawing] = {}
    if result.points and result.started_ms is not None:
        over_time = (result.points, result.faults, result.started_ms)
        drawings["Throughput"] = plots.throughput(*over_time)
        drawings["On the way"] = plots.backlog(*over_time)
        if result.latency_ms:
            drawings["Latency over time"] = plots.latency_over_time(*over_time)
    if result.latency_ms:
        drawings["Latency of all messages"] = plots.histogram(result.latency_ms)
    return drawings


def _manifest(result: Result) -> str:
    """The resolved test as a manifest; what nobody set is left out."""
    document = result.test.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    kind = {"apiVersion": result.test.api_version, "kind": result.test.kind}
    return yaml.safe_dump(kind | document, sort_keys=False, allow_unicode=True)


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(duration_ms: float) -> str:
    return f"{duration_ms / 1000:,.1f} s"
