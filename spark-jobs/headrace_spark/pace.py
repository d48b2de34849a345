"""A bounded rate: never more than asked for in any second, whatever happened before."""

import time
from collections import deque
from collections.abc import Callable

_TICK_S = 0.01  # sleeping costs about 0.1 ms of precision: 1 % of a tick
_BURST_S = 0.1  # what was missed in a stall comes back at most this much at a time
UNBOUNDED_GRANT = 1_000


class Pace:
    """Grants messages to one sender.

    A token bucket spreads them over the second; a window over the last second keeps the sum below
    the rate even right after a stall, where a bucket alone would let its content through on top.
    A grant stays in the window until one second after it was used up.
    """

    def __init__(
        self,
        per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = per_second
        self._clock = clock
        self._sleep = sleep
        if per_second is not None:
            self._window_s = max(1.0, 1 / per_second)
            self._limit = int(per_second * self._window_s)
            self._burst = max(1.0, per_second * _BURST_S)
        self._tokens = 1.0
        self._last = clock()
        self._used: deque[tuple[float, int]] = deque()  # (used up at, messages), oldest first
        self._in_window = 0
        self._open = 0

    def grant(self) -> int:
        """Wait until messages may go; how many. The next call says that these are sent."""
        if self._rate is None:
            return UNBOUNDED_GRANT
        now = self._clock()
        if self._open:
            self._used.append((now, self._open))
            self._in_window += self._open
            self._open = 0
        while True:
            while self._used and self._used[0][0] <= now - self._window_s:
                self._in_window -= self._used.popleft()[1]
            self._tokens = min(self._burst, self._tokens + (now - self._last) * self._rate)
            self._last = now
            allowed = min(int(self._tokens), self._limit - self._in_window)
            if allowed > 0:
                self._tokens -= allowed
                self._open = allowed
                return allowed
            self._sleep(_TICK_S)
            now = self._clock()
