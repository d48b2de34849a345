"""Limits how often the operator reverts changes of a child by another manager.

Most changes are made once, by a user, and are reverted at once. A controller that repeats its
change would otherwise cause writes without an end.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.timing import Backoff

_FIRST_S, _LAST_S = 1.0, 300.0
"""Delay of the second revert, and maximum delay of later reverts, in seconds."""
_CALM_S = 600.0
"""Time without a change after which the next change is reverted at once, in seconds.

It is longer than the longest delay of a revert. Changes during a delay are not recorded, so the
delay counts as time without a change.
"""
_REPORTED_FROM = 3
"""Number of changes from which an object is reported. After ``_CALM_S`` without a change, the count
begins again. A user may edit an object twice."""

Name = TypeVar("Name")


@dataclass
class _Changes:
    last_s: float
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_S, _LAST_S, jitter=False))
    due_s: float = 0.0
    """Time at which the last change may be reverted."""
    count: int = 0
    managers: set[str] = field(default_factory=set)


class Contests(Generic[Name]):
    """Changes of children by other managers. Times are monotonic seconds. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changes: dict[Name, _Changes] = {}

    def changed(self, name: Name, managers: Iterable[str]) -> None:
        """Record a change of a child that matched its manifest before."""
        now_s = self._clock()
        changes = self._current(name) or _Changes(now_s)
        changes.due_s = now_s + changes.backoff.next_s() if changes.count else now_s
        changes.count += 1
        changes.managers.update(managers)
        changes.last_s = now_s
        self._changes[name] = changes

    def wait_s(self, name: Name) -> float:
        """Return the seconds until a child may be reverted, or 0."""
        changes = self._current(name)
        return max(changes.due_s - self._clock(), 0.0) if changes else 0.0

    def managers(self, name: Name) -> list[str] | None:
        """Return the managers that change a child again and again, or None if there is none.

        The list is empty if the managers are unknown.
        """
        changes = self._current(name)
        if changes is None or changes.count < _REPORTED_FROM:
            return None
        return sorted(changes.managers)

    def calm_s(self, name: Name) -> float:
        """Return the seconds until the changes of a child are forgotten, or infinity."""
        changes = self._current(name)
        return changes.last_s + _CALM_S - self._clock() + _FIRST_S if changes else float("inf")

    def forget(self, name: Name) -> None:
        """Forget a child of a deleted flow."""
        self._changes.pop(name, None)

    def _current(self, name: Name) -> _Changes | None:
        changes = self._changes.get(name)
        if changes is not None and self._clock() - changes.last_s > _CALM_S:
            del self._changes[name]
            return None
        return changes
