"""Pairs of offsets that progress keeps until they are safe as offset syncs. Pure.

A driver that is killed takes with it which syncs were on their way. Whoever takes over writes them,
and those of what the killed one appended behind its progress.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.replication.copied_runs import Run, few_enough

MOST_PAIRS = 256
"""Of a partition. Beyond, every second one is forgotten: between two that are kept, translation is
conservative."""


@dataclass(frozen=True)
class OffsetPair:
    """A record of the source, and where its copy is on the target."""

    stretch: str
    """As the header ``STRETCH`` of its sync."""
    source_offset: int
    target_offset: int

    @property
    def offsets(self) -> tuple[int, int]:
        """Source and target offset."""
        return self.source_offset, self.target_offset


def with_runs(
    pairs: Iterable[OffsetPair], runs: Iterable[Run], new_stretch: Callable[[], str]
) -> tuple[OffsetPair, ...]:
    """The pairs, and the first and the last one of each run, where they are behind these."""
    found = list(pairs)
    for run in runs:
        known = found[-1].target_offset + 1 - run.target if found else 0
        if known < run.records:
            _add(found, run.without(max(0, known)), new_stretch)
    return tuple(few_enough(found, MOST_PAIRS))


def _add(found: list[OffsetPair], run: Run, new_stretch: Callable[[], str]) -> None:
    last = found[-1] if found else None
    follows = last is not None and run.target == last.target_offset + 1
    stretch = last.stretch if last is not None and follows else new_stretch()
    first, end = OffsetPair(stretch, run.source, run.target), OffsetPair(stretch, *run.last)
    if last is None or not run.continues(last.offsets):
        found.append(first)
    if end != found[-1]:
        found.append(end)
