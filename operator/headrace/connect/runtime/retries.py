"""Times of another attempt: for units that failed, and for partitions."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headrace.api import TopicPartition
from headrace.assign import TaskId
from headrace.datapath import OffsetGone, Reached, TargetLoss
from headrace.errors import Fatal, HeadraceError
from headrace.timing import Backoff, Clock


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


_FIRST_S, _LAST_S = 0.2, 30.0
_FIRST_STOPPED_S, _LAST_STOPPED_S = 60.0, 3600.0
"""Back-off of partitions that wait for a user: a retry needs a new lane, which disturbs the others.
"""


@dataclass
class _Failing:
    error: HeadraceError
    backoff: Backoff
    acknowledged: int
    not_before: float


class Retries:
    """Partitions that have failed since a record of theirs was acknowledged last.

    Their back-off grows until then: a round that moved nothing is no success. One thread calls it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[TopicPartition, _Failing] = {}

    def __bool__(self) -> bool:
        """Whether any partition is failing."""
        return bool(self._failing)

    @property
    def failing(self) -> frozenset[TopicPartition]:
        """All of them."""
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
        """Put a partition off; ``acknowledged`` is how far it was copied."""
        known = self._failing.get(at)
        same = known is not None and _is_stop(known.error) == _is_stop(error)
        if known is None or not same or acknowledged > known.acknowledged:
            limits = (_FIRST_STOPPED_S, _LAST_STOPPED_S) if _is_stop(error) else (_FIRST_S, _LAST_S)
            known = _Failing(error, Backoff(*limits), acknowledged, 0.0)
        known.error = error
        known.not_before = self._clock.monotonic() + known.backoff.next_s()
        self._failing[at] = known

    def at_once(self) -> None:
        """Retry stopped partitions without waiting, because a user has acted."""
        for at in self.stopped:
            self._failing[at].not_before = 0.0

    def observe(self, state: Mapping[TopicPartition, Reached]) -> bool:
        """Forget those that were copied further since, or that have nothing to copy.

        Returns whether these were the last.
        """
        for at in state.keys() & self._failing.keys():  # one that is reset begins further back
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
        """Forget all others; whether these were the last."""
        return self._forget(self._failing.keys() - partitions)

    def _forget(self, partitions: Set[TopicPartition]) -> bool:
        for at in partitions:
            del self._failing[at]
        return bool(partitions) and not self._failing


def _is_stop(error: HeadraceError) -> bool:
    """Whether trying again cannot help; a loss that the lane noticed is examined first."""
    return isinstance(error, Fatal) and not isinstance(error, OffsetGone | TargetLoss)


def _idle(reached: Reached) -> bool:
    return reached.end is not None and not reached.lag_records and not reached.in_flight
