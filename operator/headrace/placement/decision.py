"""The decision of a placement: the driver of every unit."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.assign import DriverName, TaskId


@dataclass(frozen=True)
class Placement:
    """The drivers of one unit: what is to be written to its spec."""

    driver: DriverName
    """Empty: it waits."""
    standbys: tuple[DriverName, ...] = ()
    """Sorted."""


@dataclass(frozen=True)
class PlacementDecision:
    """A decision on all units of some flows."""

    placements: Mapping[TaskId, Placement]
    """By unit; one that is no key stays where it is."""
    problems: Mapping[str, str]
    """For each flow whose assignor gave no valid answer, or whose units have no driver, a sentence
    that says so. Other flows are no keys."""
    follow_up_ms: int | None
    """When to ask again though nothing happened, on the clock of ``now_ms``; None: no need."""
