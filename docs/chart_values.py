"""Writes the table of values in the chart's README, from the ``# --`` comments of its values.yaml.

``python docs/chart_values.py`` writes it between the two marks on the page.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from marks import between

CHART = Path(__file__).parents[1] / "charts" / "headrace"
PAGE = CHART / "README.md"
BEGIN, END = "<!-- values: written by docs/chart_values.py -->", "<!-- values: end -->"
_INDENT = 2


class Value(NamedTuple):
    """A value that values.yaml documents."""

    path: tuple[str, ...]
    default: Any
    description: str


def values() -> list[Value]:
    """Return all values, in their order."""
    text = (CHART / "values.yaml").read_text()
    found = []
    path: list[str] = []
    description: list[str] = []
    for line in text.splitlines():
        if comment := re.match(r" *# (-- )?(.*)", line):
            description = [comment[2]] if comment[1] else [*description, comment[2]]
        elif key := re.match(r"( *)([A-Za-z]+):", line):
            path = [*path[: len(key[1]) // _INDENT], key[2]]
            if description:
                found.append(
                    Value(tuple(path), _at(yaml.safe_load(text), path), " ".join(description))
                )
            description = []
    return found


def table() -> str:
    """Return the values as a table."""
    lines = ["| value | default | what it is |", "| --- | --- | --- |"]
    for value in values():
        default = json.dumps(value.default)
        lines.append(f"| `{'.'.join(value.path)}` | `{default}` | {value.description} |")
    return "\n".join(lines)


def page_with(text: str) -> str:
    """Return the page, with ``text`` between its marks."""
    return between(PAGE, BEGIN, END, text)


def _at(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values[key]
    return values


if __name__ == "__main__":
    PAGE.write_text(page_with(table()))
