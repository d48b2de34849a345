"""What units weigh: bytes a second, smoothed over time."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp

from headrace.api import ReplicationTask
from headrace.assign import TaskId
from headrace.placement.assignor_input import task_id

_SMOOTHING_MS = 60_000
"""A status has the rate of about five seconds; units shall not move for a peak of that length."""
_SETTLED_MS = 30_000
"""A unit that has just started catches up: its rate then says little about its weight."""


@dataclass
class _Rate:
    since_ms: int
    last_ms: int
    per_second: float


class Rates:
    """Remembers as long as a unit runs; the more often it observes, the better the mean."""

    def __init__(self) -> None:
        self._rates: dict[TaskId, _Rate] = {}

    def observe(self, tasks: Iterable[ReplicationTask], now_ms: int) -> None:
        """Read the statuses of all units; units that are not among them are forgotten."""
        known, self._rates = self._rates, {}
        for task in tasks:
            measured, id = task.status.bytes_per_second, task_id(task)
            rate = known.get(id)
            if rate is None and measured is not None:
                rate = _Rate(now_ms, now_ms, measured)
            elif rate is not None and measured is not None:
                # A unit that is handed over reports no rate, which is not a rate of 0.
                elapsed = now_ms - rate.last_ms
                rate.per_second += (1 - exp(-elapsed / _SMOOTHING_MS)) * (
                    measured - rate.per_second
                )
                rate.last_ms = now_ms
            if rate is not None:
                self._rates[id] = rate

    def of(self, id: TaskId) -> float | None:
        """Bytes a second; None when it was not observed for long enough."""
        rate = self._rates.get(id)
        settled = rate is not None and rate.last_ms - rate.since_ms >= _SETTLED_MS
        return rate.per_second if rate is not None and settled else None
