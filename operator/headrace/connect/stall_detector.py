"""Notices that a loop stood still: a process that was frozen, a machine that was suspended."""

import time

_STANDSTILL_S = 1.0
"""A loop that stood still for longer may have been taken for lost, and its partitions taken."""


class StallDetector:
    """One for all tasks of a loop: with many of them, one's own turns may be seconds apart."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.standstills = 0
        """How often it stood still; a task that has seen fewer has to check its claim."""

    def beat(self) -> None:
        """The loop goes on."""
        now = time.monotonic()
        if now - self._last > _STANDSTILL_S:
            self.standstills += 1
        self._last = now
