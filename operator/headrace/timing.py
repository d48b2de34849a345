"""Interface of a clock, which tests replace, and the delay before the next attempt."""

import random
from typing import Protocol


class Clock(Protocol):
    """Clock as in the module ``time``, in seconds."""

    def monotonic(self) -> float:
        """Return the time since an arbitrary moment; it never decreases."""
        ...

    def time(self) -> float:
        """Return the time since 1970 according to this machine."""
        ...


class Backoff:
    """Delays between attempts, which double until the maximum is reached. Not thread-safe.

    Call ``reset`` after a successful attempt. With jitter, each delay is shortened at random to 50
    to 100 % of its length. Clients that failed together then do not retry together.
    """

    def __init__(self, first_s: float, last_s: float, *, jitter: bool = True) -> None:
        self._first_s, self._last_s, self._jitter = first_s, last_s, jitter
        self._delay_s = first_s

    def next_s(self) -> float:
        """Return the delay before the next attempt, and double the following delay."""
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, self._last_s)
        return delay_s * random.uniform(0.5, 1.0) if self._jitter else delay_s

    def reset(self) -> None:
        """Reset the delay after a successful attempt."""
        self._delay_s = self._first_s
