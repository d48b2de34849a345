"""Limits of a lane's records in flight: a slow target costs bounded memory, and no neighbour."""

from collections.abc import Iterable, Mapping, Set

from support.record_mover.in_flight_window import InFlightWindow

from headrace.api import TopicPartition
from headrace.timing import Clock

# A batch adds at most what the consumer has prefetched (16 MiB).
MAX_RECORDS = 20_000
MAX_BYTES = 32 << 20
_WITH_STUCK = 4
_STUCK_S = 1.0


class Backpressure:
    """One thread calls it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[TopicPartition, tuple[int, float]] = {}

    def full(
        self, windows: Mapping[TopicPartition, InFlightWindow], aside: Set[TopicPartition]
    ) -> bool:
        """Return whether no more may be sent now; ``aside`` are partitions that are not read."""
        read = [window for at, window in windows.items() if at not in aside]
        if _above(read, 1) or _above(windows.values(), _WITH_STUCK):
            return True
        self._waits.clear()
        return False

    def stuck(
        self, windows: Mapping[TopicPartition, InFlightWindow], aside: Set[TopicPartition]
    ) -> set[TopicPartition]:
        now = self._clock.monotonic()
        waits = {}
        for at, window in windows.items():
            if window.in_flight and at not in aside:
                acknowledged, since = self._waits.get(at, (window.acknowledged, now))
                moved = acknowledged != window.acknowledged
                waits[at] = (window.acknowledged, now if moved else since)
        self._waits = waits
        return {at for at, (_, since) in waits.items() if now - since > _STUCK_S}


def _above(windows: Iterable[InFlightWindow], times: int) -> bool:
    windows = list(windows)
    return (
        sum(window.in_flight for window in windows) > times * MAX_RECORDS
        or sum(window.bytes_in_flight for window in windows) > times * MAX_BYTES
    )
