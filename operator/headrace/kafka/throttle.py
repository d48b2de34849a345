"""Quotas of brokers, which delay the responses to a client."""

from math import inf

from headrace.api import Reason
from headrace.errors import Retriable
from headrace.timing import Clock

SMALL_FETCH_BYTES = 32 << 10
"""Maximum size of a response to a throttled client, in bytes.

A broker delays a response if it exceeds the quota together with all responses of the last ten
seconds. These include responses to other clients of the same user. While the other clients read,
even slowly, every large response exceeds the quota and is delayed.
"""
_AFTER_S = 10.0
"""Time in seconds after the end of a delay within which data arrive, or the next delay is
announced."""


class Throttled(Retriable):
    """Brokers delay data because of a quota. The message says how much was read."""

    reason = Reason.THROTTLED


class Throttle:
    """Delays that brokers have announced to one consumer. Thread-safe.

    A silent consumer must not be replaced while it is throttled, because it would lose the data in
    flight.
    """

    def __init__(self, clock: Clock) -> None:
        """Create the object; no delay is known."""
        self._clock, self._until_s = clock, -inf

    def announce(self, delay_s: float) -> None:
        """Receive the delay of a response, which is 0 if there is none."""
        if delay_s > 0:
            self._until_s = self._clock.monotonic() + delay_s

    @property
    def seen(self) -> bool:
        """Whether a broker has announced a delay. The consumer then requests less at a time."""
        return self._until_s > -inf

    @property
    def active(self) -> bool:
        """Whether missing data may be due to a delay."""
        return self._clock.monotonic() < self._until_s + _AFTER_S

    def error(self, tried: str, read: int, end: int) -> Throttled:
        """Return the error of a reader that has read ``read`` of ``end`` offsets."""
        return Throttled(
            f"could not {tried} yet, {read:,} of {end:,} offsets are read: a quota of the brokers "
            "(consumer_byte_rate) throttles this client"
        )
