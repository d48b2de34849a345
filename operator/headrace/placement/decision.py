"""The decision of a placement: where every unit is to run."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.assign import DriverName, TaskId


@dataclass(frozen=True)
class Placement:
    """Where one unit runs: what is to be written to its spec."""

    driver: DriverName
    """Empty: it waits."""
    standbys: tuple[DriverName, ...] = ()
    """Sorted."""


@dataclass(frozen=True)
class PlacementDecision:
    """A decision on all units of some flows."""

    placements: Mapping[TaskId, Placement]
    """Every unit that was asked about is a key."""
    problems: Mapping[str, str]
    """For each flow whose assignor gave no good answer, or whose units have no driver, a sentence
    that says so. Other flows are no keys."""
    follow_up_ms: int | None
    """When to ask again though nothing happened, on the clock of ``now_ms``; None: no need."""
