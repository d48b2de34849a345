"""The progress of a mirror test's load, as its producers report it."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.api import Load
from headrace.mirror_test import journal_keys

_SILENCE_S = 120.0
"""Producers report twice a second: after so long without a report they are dead."""

Poll = Callable[[float], Iterable[tuple[str, Any]]]
"""New records of the run's journal, as key and value; waits at most so many seconds."""


@dataclass(frozen=True)
class LoadProgress:
    """The progress of the load."""

    acknowledged: int
    """Messages."""
    percent: float
    """Of the load's messages; of its time, where that is its bound."""
    elapsed_s: float
    """Since the first message."""


class LoadClock:
    """Derives the progress from the number of acknowledged messages and from the clock."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._started_s: float | None = None
        self.acknowledged = 0
        """Messages; set by whoever receives reports."""

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


class Acknowledged:
    """The latest report of each producer."""

    def __init__(self) -> None:
        self._by_key: dict[str, int] = {}

    def receive(self, key: str, value: Any) -> bool:
        """Take a record of the journal; whether it was a producer's report."""
        if not journal_keys.is_progress(key):
            return False
        self._by_key[key] = value["acknowledged"]
        return True

    @property
    def total(self) -> int:
        """Messages acknowledged by the source."""
        return sum(self._by_key.values())


class LoadTail:
    """Follows the load in the run's journal."""

    def __init__(self, poll: Poll, load: Load) -> None:
        self._poll = poll
        self._acknowledged = Acknowledged()
        self._reported_s: float | None = None
        self._has_manifest = False
        self.clock = LoadClock(load)

    @property
    def ended(self) -> bool:
        """Whether the load's manifest is there, or its producers are dead."""
        reported_s = self._reported_s
        silent = reported_s is not None and time.monotonic() - reported_s > _SILENCE_S
        return self._has_manifest or silent

    def receive(self, for_s: float) -> None:
        """Take the records of the next ``for_s`` seconds."""
        until = time.monotonic() + for_s
        while (left_s := until - time.monotonic()) > 0:
            for key, value in self._poll(left_s):
                if self._acknowledged.receive(key, value):
                    self._reported_s = time.monotonic()
                self._has_manifest |= key == journal_keys.MANIFEST
        self.clock.acknowledged = self._acknowledged.total
