"""Figures of a driver's units: what is reported, and what only grows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.api import ReplicationTaskStatus
from headrace.assign import TaskId
from headrace.datapath import CopiedCounts
from headrace.errors import HeadraceError


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


@dataclass
class CommitCounts:
    """Outcomes of storing progress, without claims; they only grow. Any thread may read them."""

    succeeded: int = 0
    failed: int = 0
    """Refused, or not answered in time."""
    last_at_s: float | None = None
    """Unix time at which the last answer was taken of progress that is stored."""

    def succeed(self, at_s: float) -> None:
        """Count one that the target has acknowledged."""
        self.succeeded += 1
        self.last_at_s = at_s

    @contextmanager
    def counting_failure(self) -> Iterator[None]:
        """Count the error that is raised."""
        try:
            yield
        except HeadraceError:
            self.failed += 1
            raise


@dataclass(frozen=True)
class UnitFigures:
    """Current state of one unit."""

    id: TaskId
    status: ReplicationTaskStatus
    """Status that the unit reports next."""
    copied: CopiedCounts | None = None
    """Copied records of a source task."""
    commits: CommitCounts | None = None
    """Outcomes of a source task's stored progress."""
    bandwidth_waited_s: float | None = None
    """Time that a source task has waited for ``spec.bandwidth``."""
    taken: int = 0
    """Number of times that another owner took a partition (``Contested.taken``)."""
    restarts: int = 0
    """Total restarts (``Restarts.total``); the status's count restarts when the unit is stable."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Unread records of a checkpoint task's groups (``GroupCheckpoints.unread``)."""
    translations: Mapping[str, int] = field(default_factory=dict)
    """Translations of a checkpoint task (``GroupCheckpoints.translations``)."""
    beats: Mapping[str, float] = field(default_factory=dict)
    """Times of a heartbeat task's last heartbeats (``HeartbeatTask.beats``)."""
