"""How far the load of a mirror test is."""

import time
from dataclasses import dataclass

from headrace.api import Load


@dataclass(frozen=True)
class LoadProgress:
    """How far the load is."""

    acknowledged: int
    """Messages."""
    percent: float
    """Of the load's messages; of its time, where that is what bounds it."""
    elapsed_s: float
    """Since the first message."""


class LoadClock:
    """How far the load is, by what its producers got acknowledged and by the clock."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._started_s: float | None = None
        self.acknowledged = 0
        """Messages; whoever hears of them sets it."""

    def progress(self) -> LoadProgress | None:
        """``None`` before the first message."""
        if not self.acknowledged:
            return None
        if self._started_s is None:
            self._started_s = time.monotonic()
        elapsed_s = time.monotonic() - self._started_s
        share = (
            self.acknowledged / self._load.messages
            if self._load.messages
            else elapsed_s / (self._load.duration_seconds or 1)
        )
        return LoadProgress(self.acknowledged, min(100.0, 100 * share), elapsed_s)
