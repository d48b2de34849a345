"""A rate that does not jump."""


class Rate:
    """Units a second of a growing count, smoothed over some five seconds."""

    _SMOOTHING_S = 5.0

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self.per_second = 0.0

    def count(self, now_s: float, total: float) -> None:
        """Update the rate: the count, which only grows, was ``total`` at ``now_s``."""
        if self._last is not None:
            elapsed, grown = now_s - self._last[0], total - self._last[1]
            if elapsed > 0:
                weight = min(1.0, elapsed / self._SMOOTHING_S)
                self.per_second += weight * (grown / elapsed - self.per_second)
        self._last = (now_s, total)
