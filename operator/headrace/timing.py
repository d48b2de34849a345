"""Clock as a port, and the time to wait before the next attempt."""

import random
from typing import Protocol


class Clock(Protocol):
    """As the module ``time`` has them; both in seconds."""

    def monotonic(self) -> float:
        """Since some moment; never set back."""
        ...

    def time(self) -> float:
        """Since 1970, as this machine believes."""
        ...


class Backoff:
    """Delays in seconds; ``reset`` after a success. Not thread-safe.

    With jitter a delay is 50 to 100 % of its length: those that failed together must not come back
    together.
    """

    def __init__(self, first_s: float, last_s: float, *, jitter: bool = True) -> None:
        self._first_s, self._last_s, self._jitter = first_s, last_s, jitter
        self._delay_s = first_s

    def next_s(self) -> float:
        """The delay before the next attempt."""
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, self._last_s)
        return delay_s * random.uniform(0.5, 1.0) if self._jitter else delay_s

    def reset(self) -> None:
        """An attempt succeeded: the next delay is the first one again."""
        self._delay_s = self._first_s
