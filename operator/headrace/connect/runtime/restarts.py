"""When a unit that failed is started again."""

from collections.abc import Set
from dataclasses import dataclass

from headrace.assign import TaskId
from headrace.timing import Backoff


def restart_delay_s(restarts: int) -> float:
    """Seconds before the next restart of a failed unit: n²+n minutes, at most an hour.

    The first is at once. (Strimzi's auto-restart.)
    """
    return 60.0 * min(restarts * restarts + restarts, 60)


_FIRST_CLAIM_S, _LAST_CLAIM_S = 0.2, 60.0
_HELD_S = 60.0
"""A unit that was held for so long was lost for another reason than the time before."""


class Reclaims:
    """Says when to claim a unit again whose ownership was lost: at once, then with back-off.

    Without it, two owners that take a unit from each other would repeat that as fast as the API
    server answers. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._backoffs: dict[TaskId, Backoff] = {}
        self._due: dict[TaskId, tuple[float, float]] = {}
        """By unit: the start of the instance that was lost, and when the next one may start."""

    def is_due(self, id: TaskId, started_at: float, now: float) -> bool:
        """Return whether the unit may be claimed again; ``started_at`` tells instances apart."""
        known = self._due.get(id)
        if known is None or known[0] != started_at:
            backoff = self._backoffs.setdefault(id, Backoff(_FIRST_CLAIM_S, _LAST_CLAIM_S))
            if now - started_at > _HELD_S:
                backoff.reset()
            delay_s = 0.0 if known is None or now - started_at > _HELD_S else backoff.next_s()
            known = self._due[id] = started_at, now + delay_s
        return now >= known[1]

    def keep(self, ids: Set[TaskId]) -> None:
        """Forget all other units: they are assigned to other drivers."""
        self._backoffs = {id: one for id, one in self._backoffs.items() if id in ids}
        self._due = {id: one for id, one in self._due.items() if id in ids}


@dataclass
class _Failures:
    restarts: int
    last_restart: float
    instance: float
    """Instance that failed last, by the time of its start."""


class Restarts:
    """Count of each unit's restarts. Times are monotonic seconds.

    ``count`` and ``total`` are thread-safe.
    """

    def __init__(self) -> None:
        self._failures: dict[TaskId, _Failures] = {}
        self._totals: dict[TaskId, int] = {}

    def count(self, id: TaskId) -> int:
        """Restarts since the unit was last stable."""
        failures = self._failures.get(id)
        return failures.restarts if failures else 0

    def total(self, id: TaskId) -> int:
        """Restarts in this process, which only grow."""
        return self._totals.get(id, 0)

    def forget(self, id: TaskId) -> None:
        """Reset a unit's count after a user restarted it."""
        self._failures.pop(id, None)

    def is_due(self, id: TaskId, started_at: float, now: float) -> bool:
        """Whether a unit that failed is to be restarted now, which then counts as done.

        ``started_at`` tells its instances apart. Ask soon after it failed, and again and again.
        """
        failures = self._failures.setdefault(id, _Failures(0, now, started_at))
        if failures.instance != started_at:
            failures.instance = started_at
            # It ran longer than it would wait: a new trouble, not the old one. (What it then waits
            # as a failed unit is no sign of that.)
            if now - started_at > restart_delay_s(failures.restarts + 1):
                failures.restarts = 0
        if now - failures.last_restart < restart_delay_s(failures.restarts):
            return False
        failures.restarts += 1
        self._totals[id] = self.total(id) + 1
        failures.last_restart = now
        return True
