"""A consumer that follows what is written, and whether it keeps up.

One that has no moment to wait for messages measures itself: what it gets has waited for it.
"""

from collections.abc import Callable

from headrace.kafka import Consumer, Message
from headrace_spark.clocks import steady_ms

BEHIND_MS = 1_000
"""Without a pause for so long, it may be behind."""
_AT_ONCE = 500
"""Messages that are there."""


class Following:
    """See above."""

    def __init__(self, consumer: Consumer, clock: Callable[[], int] = steady_ms) -> None:
        """``clock``: in ms."""
        self._consumer, self._clock = consumer, clock
        self._waited_at_ms = clock()

    def take(self, wait_s: float) -> list[Message]:
        """Those that are there; else the next one, if it comes in time."""
        if found := self._consumer.consume(_AT_ONCE, 0):
            return found
        message = self._consumer.poll(wait_s)
        self._waited_at_ms = self._clock()
        return [] if message is None else [message]

    @property
    def is_behind(self) -> bool:
        """What was taken last may have waited for this consumer."""
        return self._clock() - self._waited_at_ms >= BEHIND_MS
