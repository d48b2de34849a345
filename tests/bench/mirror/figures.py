"""The figures of a run, and the ratios and tables made from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

WARM_FROM = 0.2
"""Figures begin when this part is copied: a JVM's start and compiling are not its speed."""


@dataclass(frozen=True)
class Sample:
    """The state at one moment of a catch-up."""

    at_s: float
    records: int
    """Records on the target."""
    cpu_s: float
    """User and system time of all processes of the replicator, since their start."""
    rss_bytes: int


@dataclass(frozen=True)
class CatchUp:
    """A catch-up, from WARM_FROM to its end."""

    mb_per_s: float
    """Millions of bytes of values; keys and framing are not counted."""
    records_per_s: float
    cpu_s_per_gb: float
    """Per 10^9 bytes of values, from WARM_FROM on."""
    whole_cpu_s_per_gb: float
    """CPU seconds per 10^9 bytes of values, from the start of the process on."""
    peak_rss_mb: float


def catch_up(samples: Sequence[Sample], records: int, value_bytes: int) -> CatchUp:
    """Return the figures of samples. At the last one, all records were on the target."""
    first = next(one for one in samples if one.records >= records * WARM_FROM)
    last = samples[-1]
    copied = last.records - first.records
    seconds = last.at_s - first.at_s
    if not copied or not seconds:
        raise ValueError("the copy was over between two samples: use more records")
    copied_bytes = copied * value_bytes
    return CatchUp(
        copied_bytes / seconds / 1e6,
        copied / seconds,
        (last.cpu_s - first.cpu_s) / copied_bytes * 1e9,
        last.cpu_s / (records * value_bytes) * 1e9,
        max(one.rss_bytes for one in samples) / 1e6,
    )


def middle(runs: Iterable[CatchUp]) -> CatchUp:
    """Return the median of each figure by itself."""
    columns = zip(*(tuple(vars(run).values()) for run in runs), strict=True)
    return CatchUp(*(median(column) for column in columns))


def table(figures: Mapping[str, CatchUp], baselines: Sequence[str]) -> str:
    """Return a Markdown table, with core-seconds per GB of each baseline divided by the row's."""
    heads = ["", "MB/s", "records/s", "core-s/GB", "with start", "peak RSS MB"]
    heads += [f"{name} : this" for name in baselines]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, one in figures.items():
        row = [name, f"{one.mb_per_s:,.0f}", f"{one.records_per_s:,.0f}"]
        row += [f"{one.cpu_s_per_gb:.2f}", f"{one.whole_cpu_s_per_gb:.2f}"]
        row += [f"{one.peak_rss_mb:,.0f}"]
        row += [f"{figures[base].cpu_s_per_gb / one.cpu_s_per_gb:.1f}" for base in baselines]
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
