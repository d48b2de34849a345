"""Drivers that were started together join one after the other: the first would get all units."""

_GRACE_S = 5.0
"""The longest wait for the others."""


class StartupGrace:
    """How long units wait for the rest of a set of drivers. Times are of a monotonic clock.

    It begins when the first of several drivers is seen that has no unit (of all, or of those that
    join: what it got would move on to the next), or at ``begin``; it ends with the last driver.
    Once over, it does not begin by itself before all drivers were there, or none.
    """

    def __init__(self) -> None:
        self.until_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Drivers are being started: the whole time again."""
        self.until_s = now_s + _GRACE_S

    def is_running(self, ready: int, expected: int, *, idle: bool, now_s: float) -> bool:
        """Whether to wait for more than ``ready`` drivers; ``idle``: one of these has no unit."""
        over = self.until_s is not None and now_s >= self.until_s
        if ready >= expected or (over and not ready):
            self.until_s = None
        elif self.until_s is None and ready and idle:
            self.begin(now_s)
        return self.until_s is not None and now_s < self.until_s
