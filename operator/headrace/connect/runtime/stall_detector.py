"""Notices that a loop stalled: a process that was frozen, a machine that was suspended."""

from headrace.timing import Clock

_STALL_S = 1.0
"""A loop that stalled for longer may have been taken for lost, and its partitions reassigned."""


class StallDetector:
    """One for all tasks of a loop: with many tasks, one task's own steps may be seconds apart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self.stalls = 0
        """How often the loop stalled; a task that has seen fewer must check its claim."""

    def beat(self) -> None:
        """Record that the loop runs."""
        now = self._clock.monotonic()
        if now - self._last > _STALL_S:
            self.stalls += 1
        self._last = now
