"""Partition numbers as ranges, ``0-3,7``: a thousand partitions stay a short object."""

import re
from collections.abc import Iterable

_PART = r" *\d{1,6}(-\d{1,6})? *"
RANGES = f"{_PART}(,{_PART})*"
"""The shape of such text, in the syntax that Python and RE2 share."""
HIGHEST = 999_999
"""Far above any partition Kafka can have; keeps ``0-99999999999`` from filling the memory."""


def parse_ranges(text: str) -> tuple[int, ...]:
    """``"0-3,7"`` -> ``(0, 1, 2, 3, 7)``, sorted, each once; an empty text has none.

    Raises ValueError with a sentence.
    """
    numbers: set[int] = set()
    for part in text.split(",") if text.strip() else ():
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part, re.ASCII)
        if not match:
            raise ValueError(f"{part.strip()!r} is neither a number nor a range like 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part.strip()} runs backwards")
        if last > HIGHEST:
            raise ValueError(f"{last} is above the highest partition number, {HIGHEST}")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def format_ranges(numbers: Iterable[int]) -> str:
    """``(7, 0, 1, 2, 3)`` -> ``"0-3,7"``: the shortest text for :func:`parse_ranges`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
