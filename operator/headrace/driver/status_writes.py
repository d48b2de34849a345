"""Which reports are worth a write to the API server, and when: pure.

A change of state is, at once. Lag and rate change all the time: they are written with it, else when
they leave their power-of-two band, and of such writes a driver makes at most one a second.
"""

from dataclasses import dataclass
from enum import IntEnum

from headrace.api import ReplicationTaskStatus

_FINE_INTERVAL_S = 1.0
_STALE_S = 5.0
"""A unit that did not ask for so long has ended, and must not keep others waiting."""


class Urgency(IntEnum):
    """Of a report, compared with what was written last."""

    NONE = 0
    FINE = 1
    AT_ONCE = 2


def urgency(written: ReplicationTaskStatus, now: ReplicationTaskStatus) -> Urgency:
    """How soon ``now`` is to replace ``written``."""
    if _state(written) != _state(now):
        return Urgency.AT_ONCE
    return Urgency.FINE if _detail(written) != _detail(now) else Urgency.NONE


def _state(status: ReplicationTaskStatus) -> tuple[object, ...]:
    return (
        status.driver_name,
        status.driver_incarnation,
        status.epoch,
        status.phase,
        status.partitions,
        status.racks,
        status.observed_generation,
        status.restarts,
        status.last_error and status.last_error.reason,
        [(condition.type, condition.status, condition.reason) for condition in status.conditions],
    )


def _detail(status: ReplicationTaskStatus) -> tuple[object, ...]:
    lag = (status.lag.records, status.lag.seconds) if status.lag else (None, None)
    measured = (*lag, status.bytes_per_second)
    return (
        [None if number is None else number.bit_length() for number in measured],
        status.last_error and status.last_error.message,
        [condition.message for condition in status.conditions],
    )


@dataclass
class _Waiting:
    since: float
    asked: float


class WriteTurns:
    """One turn a second, for whoever has waited longest. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._next = 0.0

    def is_due(self, name: str, now: float) -> bool:
        """Whether it is the turn of ``name``; ask again until it is."""
        self._waiting.setdefault(name, _Waiting(now, now)).asked = now
        if now < self._next:
            return False
        self._waiting = {n: w for n, w in self._waiting.items() if now - w.asked < _STALE_S}
        if name != min(self._waiting, key=lambda waiting: self._waiting[waiting].since):
            return False
        del self._waiting[name]
        self._next = now + _FINE_INTERVAL_S
        return True
