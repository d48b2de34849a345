"""Retries of failed partitions: each at its own time, while the others continue."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError
from headrace.movers import OffsetGone, Reached, TargetLoss
from headrace.timing import Backoff, Clock

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
