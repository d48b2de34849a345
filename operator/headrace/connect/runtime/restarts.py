"""When a unit that failed is started again."""

from dataclasses import dataclass

from headrace.assign import TaskId


def restart_delay_s(restarts: int) -> float:
    """Seconds before the next restart of a failed unit: n²+n minutes, at most an hour.

    The first is at once. (Strimzi's auto-restart.)
    """
    return 60.0 * min(restarts * restarts + restarts, 60)


@dataclass
class _Failures:
    restarts: int
    last_restart: float
    instance: float
    """Which instance failed last, by the time of its start."""


class Restarts:
    """Counts the restarts of each unit. Times are monotonic seconds. ``count`` and ``total`` are
    thread-safe."""

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
        """Somebody restarted it by hand: its count begins again."""
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
