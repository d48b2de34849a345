"""When partitions that failed retriably are tried again: each in its own time, the others go on."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headrace.api import TopicPartition
from headrace.backoff import Backoff
from headrace.clock import Clock
from headrace.movers import Reached

_FIRST_S, _LAST_S = 0.2, 30.0


@dataclass
class _Failing:
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
    def waiting(self) -> frozenset[TopicPartition]:
        """Those whose back-off is not over."""
        now = self._clock.monotonic()
        return frozenset(at for at, one in self._failing.items() if one.not_before > now)

    def failed(self, at: TopicPartition, acknowledged: int) -> None:
        """Put a partition off; ``acknowledged`` is how far it was copied."""
        known = self._failing.get(at)
        if known is None or acknowledged > known.acknowledged:
            known = self._failing[at] = _Failing(Backoff(_FIRST_S, _LAST_S), acknowledged, 0.0)
        known.not_before = self._clock.monotonic() + known.backoff.next_s()

    def observe(self, state: Mapping[TopicPartition, Reached]) -> bool:
        """Forget those that were copied further since, or that have nothing to copy.

        Returns whether these were the last.
        """
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


def _idle(reached: Reached) -> bool:
    return reached.end is not None and not reached.lag_records and not reached.in_flight
