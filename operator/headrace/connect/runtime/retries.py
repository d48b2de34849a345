"""Times of the next attempt, for failed units and for failed partitions."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headrace.api import TopicPartition
from headrace.assign import TaskId
from headrace.datapath import OffsetGone, Reached, TargetLoss
from headrace.errors import Fatal, HeadraceError
from headrace.timing import Backoff, Clock


def restart_delay_s(restarts: int) -> float:
    """Return the seconds before the next restart of a failed unit.

    After n restarts, the delay is n²+n minutes, at most 1 h. The first restart is immediate, as in
    Strimzi's auto-restart.
    """
    return 60.0 * min(restarts * restarts + restarts, 60)


_FIRST_CLAIM_S, _LAST_CLAIM_S = 0.2, 60.0
_HELD_S = 60.0
"""Time in seconds after which a claimed unit counts as stable, so that the back-off is reset."""


class Reclaims:
    """Back-off of units whose ownership was lost. The first new claim is immediate.

    Without the back-off, two owners that take a unit from each other would repeat that as fast as
    the API server responds. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._backoffs: dict[TaskId, Backoff] = {}
        self._due: dict[TaskId, tuple[float, float]] = {}
        """For each unit: the start time of the lost instance, and the time at which the next one
        may start."""

    def is_due(self, id: TaskId, started_at: float, now: float) -> bool:
        """Return whether the unit may be claimed again.

        ``started_at`` identifies the lost instance.
        """
        known = self._due.get(id)
        if known is None or known[0] != started_at:
            backoff = self._backoffs.setdefault(id, Backoff(_FIRST_CLAIM_S, _LAST_CLAIM_S))
            if now - started_at > _HELD_S:
                backoff.reset()
            delay_s = 0.0 if known is None or now - started_at > _HELD_S else backoff.next_s()
            known = self._due[id] = started_at, now + delay_s
        return now >= known[1]

    def keep(self, ids: Set[TaskId]) -> None:
        """Forget all other units, because they are assigned to other drivers."""
        self._backoffs = {id: one for id, one in self._backoffs.items() if id in ids}
        self._due = {id: one for id, one in self._due.items() if id in ids}


@dataclass
class _Failures:
    restarts: int
    last_restart: float
    instance: float
    """Start time of the instance that failed last."""


class Restarts:
    """Count of each unit's restarts. Times are monotonic seconds.

    ``count`` and ``total`` are thread-safe.
    """

    def __init__(self) -> None:
        self._failures: dict[TaskId, _Failures] = {}
        self._totals: dict[TaskId, int] = {}

    def count(self, id: TaskId) -> int:
        """Return the number of restarts since the unit was last stable."""
        failures = self._failures.get(id)
        return failures.restarts if failures else 0

    def total(self, id: TaskId) -> int:
        """Return the number of all restarts in this process."""
        return self._totals.get(id, 0)

    def add(self, id: TaskId) -> None:
        """Add a restart to ``total``. It does not change the back-off."""
        self._totals[id] = self.total(id) + 1

    def forget(self, id: TaskId) -> None:
        """Reset a unit's count after a user restarted it."""
        self._failures.pop(id, None)

    def is_due(self, id: TaskId, started_at: float, now: float) -> bool:
        """Return whether a failed unit must be restarted now, and count that restart.

        ``started_at`` identifies the failed instance. Call it repeatedly, soon after the failure.
        """
        failures = self._failures.setdefault(id, _Failures(0, now, started_at))
        if failures.instance != started_at:
            failures.instance = started_at
            # The unit ran for longer than the next delay, so this failure counts as the first one.
            # The time that it waits as a failed unit does not count.
            if now - started_at > restart_delay_s(failures.restarts + 1):
                failures.restarts = 0
        if now - failures.last_restart < restart_delay_s(failures.restarts):
            return False
        failures.restarts += 1
        self.add(id)
        failures.last_restart = now
        return True


_FIRST_S, _LAST_S = 0.2, 30.0
_FIRST_STOPPED_S, _LAST_STOPPED_S = 60.0, 3600.0
"""Minimum and maximum back-off, in seconds, of partitions that need a user's action. Each retry
needs a new lane, which disturbs other partitions."""


@dataclass
class _Failing:
    error: HeadraceError
    backoff: Backoff
    acknowledged: int
    not_before: float


class Retries:
    """Partitions that failed after their last acknowledged record, with their back-off.

    The back-off grows until a record is acknowledged. Not thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[TopicPartition, _Failing] = {}

    def __bool__(self) -> bool:
        return bool(self._failing)

    @property
    def failing(self) -> frozenset[TopicPartition]:
        """All failing partitions."""
        return frozenset(self._failing)

    @property
    def waiting(self) -> frozenset[TopicPartition]:
        """Partitions whose back-off is not over."""
        now = self._clock.monotonic()
        return frozenset(at for at, one in self._failing.items() if one.not_before > now)

    @property
    def stopped(self) -> dict[TopicPartition, HeadraceError]:
        """Partitions that need a user's action, with the error."""
        return {at: one.error for at, one in self._failing.items() if _is_stop(one.error)}

    def failed(self, at: TopicPartition, acknowledged: int, error: HeadraceError) -> None:
        """Delay the next attempt of a partition; ``acknowledged`` is its next source offset."""
        known = self._failing.get(at)
        same = known is not None and _is_stop(known.error) == _is_stop(error)
        if known is None or not same or acknowledged > known.acknowledged:
            limits = (_FIRST_STOPPED_S, _LAST_STOPPED_S) if _is_stop(error) else (_FIRST_S, _LAST_S)
            known = _Failing(error, Backoff(*limits), acknowledged, 0.0)
        known.error = error
        known.not_before = self._clock.monotonic() + known.backoff.next_s()
        self._failing[at] = known

    def at_once(self) -> None:
        """Retry stopped partitions without delay, because a user has acted."""
        for at in self.stopped:
            self._failing[at].not_before = 0.0

    def observe(self, state: Mapping[TopicPartition, Reached]) -> bool:
        """Forget partitions with new acknowledged records, and idle partitions.

        Return whether these were the last failing partitions.
        """
        for at in state.keys() & self._failing.keys():  # a reset moves an offset back
            failing = self._failing[at]
            failing.acknowledged = min(failing.acknowledged, state[at].acknowledged)
        return self._forget(
            {
                at
                for at, failing in self._failing.items()
                if (reached := state.get(at))
                and (reached.acknowledged > failing.acknowledged or _idle(reached))
            }
        )

    def keep(self, partitions: Set[TopicPartition]) -> bool:
        """Forget all other partitions; return whether these were the last failing ones."""
        return self._forget(self._failing.keys() - partitions)

    def _forget(self, partitions: Set[TopicPartition]) -> bool:
        for at in partitions:
            del self._failing[at]
        return bool(partitions) and not self._failing


def _is_stop(error: HeadraceError) -> bool:
    """Return whether the error needs a user's action.

    The result is False for a loss that a lane reports, because a restore examines it first.
    """
    return isinstance(error, Fatal) and not isinstance(error, OffsetGone | TargetLoss)


def _idle(reached: Reached) -> bool:
    return reached.end is not None and not reached.lag_records and not reached.in_flight
