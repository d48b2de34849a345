"""Limit of a flow's read rate on one driver, from ``spec.bandwidth``."""

import threading
import time

from headrace.timing import Clock

_BURST_S = 0.5
"""Unused bandwidth of at most this duration, in seconds, may be used later."""
_WINDOW_S = 10.0
"""Length of the window, in seconds, over which ``used_up`` is judged. A shorter one would report
bursts."""


class TokenBucket:
    """Token bucket for all lanes of a flow on a driver. Thread-safe.

    Data are charged after they were read, and lanes wait until the debt is paid off.
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._rate: float | None = None
        self._debt, self._at_s = 0.0, clock.monotonic()
        """Debt in bytes at ``_at_s``; negative if bandwidth is unused."""
        self._waited_s, self._waited_until_s = 0.0, float("-inf")
        self._window, self._used_up = (self._at_s, 0.0), False
        """Start of the window, and the total waiting time before it."""
        self._lock = threading.Lock()

    def limit(self, bytes_per_s: float | None) -> None:
        """Set the limit in bytes a second; None removes it."""
        with self._lock:
            self._settle()
            self._rate = bytes_per_s
            if bytes_per_s is None:
                self._debt, self._used_up = 0.0, False

    @property
    def limited(self) -> bool:
        return self._rate is not None

    @property
    def request_bytes(self) -> float:
        """Recommended maximum size of a request in bytes: a quarter of a second's bandwidth."""
        rate = self._rate
        return float("inf") if rate is None else rate / 4

    @property
    def waited_s(self) -> float:
        """Total time, in seconds, in which nothing was read because of the limit."""
        with self._lock:
            self._settle()
            return self._waited_s

    @property
    def used_up(self) -> bool:
        """Whether lanes waited for at least half of the last window."""
        with self._lock:
            self._settle()
            return self._used_up

    def waited_within(self, seconds: float) -> bool:
        """Return whether lanes waited at any time in the last ``seconds``."""
        with self._lock:
            self._settle()
            return self._at_s - self._waited_until_s < seconds

    def spend(self, size: int) -> None:
        """Charge bytes that were read."""
        with self._lock:
            if self._rate is not None:
                self._settle()
                self._debt += size

    def wait_s(self) -> float:
        """Return the time in seconds until more may be read; 0 if it may be read now."""
        with self._lock:
            if self._rate is None:
                return 0.0
            self._settle()
            return max(0.0, self._debt / self._rate)

    def _settle(self) -> None:
        now_s = self._clock.monotonic()
        rate = self._rate or 0.0
        if self._debt > 0:  # without a limit, the debt is 0
            waited_s = min(now_s - self._at_s, self._debt / rate)
            self._waited_s += waited_s
            self._waited_until_s = self._at_s + waited_s
        began_s, before_s = self._window
        if (length_s := now_s - began_s) >= _WINDOW_S:
            self._used_up = self._waited_s - before_s >= length_s / 2
            self._window = now_s, self._waited_s
        paid = self._debt - rate * (now_s - self._at_s)
        self._debt, self._at_s = max(paid, -rate * _BURST_S), now_s
