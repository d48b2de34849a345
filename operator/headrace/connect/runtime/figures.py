"""Figures of a driver's units: current state and counters."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.api import ReplicationTaskStatus
from headrace.assign import TaskId
from headrace.datapath import CopiedCounts
from headrace.errors import HeadraceError


class Rate:
    """Mean growth of a counter per second in the last five seconds."""

    _WINDOW_S = 5.0

    def __init__(self) -> None:
        self._counts = deque[tuple[float, float]]()
        self.per_second = 0.0

    def count(self, now_s: float, total: float) -> None:
        """Update the rate: the counter was ``total`` at ``now_s``."""
        counts = self._counts
        counts.append((now_s, total))
        while len(counts) > 1 and counts[1][0] <= now_s - self._WINDOW_S:
            counts.popleft()
        since_s, before = counts[0]
        self.per_second = (total - before) / max(now_s - since_s, self._WINDOW_S)


@dataclass
class CommitCounts:
    """Counters of attempts to store progress. Claims do not count. Any thread may read them."""

    succeeded: int = 0
    failed: int = 0
    """Number of attempts that were rejected or not acknowledged in time."""
    last_at_s: float | None = None
    """Unix time of the last successful attempt; None before the first."""

    def succeed(self, at_s: float) -> None:
        """Count a successful attempt."""
        self.succeeded += 1
        self.last_at_s = at_s

    @contextmanager
    def counting_failure(self) -> Iterator[None]:
        """Count a failed attempt if the ``with`` block raises an error."""
        try:
            yield
        except HeadraceError:
            self.failed += 1
            raise


@dataclass(frozen=True)
class UnitFigures:
    """Current figures of one unit.

    Fields that do not apply to the unit's type are None, empty or 0.
    """

    id: TaskId
    status: ReplicationTaskStatus
    """Status that the unit reports next."""
    copied: CopiedCounts | None = None
    """Counts of copied records, of a source task."""
    commits: CommitCounts | None = None
    """Counts of attempts to store progress, of a source task."""
    bandwidth_waited_s: float | None = None
    """Time in seconds for which a source task has waited because of ``spec.bandwidth``."""
    taken: int = 0
    """Number of times that another owner took a partition (``Contested.taken``)."""
    restarts: int = 0
    """Number of all restarts (``Restarts.total``). The count in the status is reset when the unit
    is stable."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Number of unread records by group, of a checkpoint task (``GroupCheckpoints.unread``)."""
    translations: Mapping[str, int] = field(default_factory=dict)
    """Number of translations by precision, of a checkpoint task
    (``GroupCheckpoints.translations``)."""
    beats: Mapping[str, float] = field(default_factory=dict)
    """Unix times of the last heartbeats by alias, of a heartbeat task (``HeartbeatTask.beats``)."""
