"""Writes the tables of ``docs/metrics.md`` from the metrics' own descriptions.

``python docs/metrics.py`` writes the text between the two marks on the page.
"""

from collections.abc import Sequence
from pathlib import Path

from marks import between

from headrace.controller import metrics as operator
from headrace.driver import metrics as driver
from headrace.k8s import client as requests
from headrace.telemetry import BUILD_INFO, Described

PAGE = Path(__file__).with_suffix(".md")
BEGIN, END = "<!-- metrics: written by docs/metrics.py -->", "<!-- metrics: end -->"
SECTIONS: dict[str, Sequence[Described]] = {
    "Drivers": driver.METRICS,
    "Operator": operator.METRICS,
    "Both": (BUILD_INFO, *requests.METRICS),
}


def tables() -> str:
    """Return one table for each section."""
    return "\n\n".join(f"## {title}\n\n{_table(metrics)}" for title, metrics in SECTIONS.items())


def page_with(text: str) -> str:
    """Return the page, with ``text`` between its marks."""
    return between(PAGE, BEGIN, END, text)


def _table(metrics: Sequence[Described]) -> str:
    rows = [f"| `{m.name}` | {m.type} | {', '.join(m.labels)} | {m.help} |" for m in metrics]
    return "\n".join(
        ["| metric | type | labels | what it says |", "| --- | --- | --- | --- |", *rows]
    )


if __name__ == "__main__":
    PAGE.write_text(page_with(tables()))
