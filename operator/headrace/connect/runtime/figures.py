"""What a driver can say of the units that it runs: what is reported, and what only grows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.api import ReplicationTaskStatus
from headrace.assign import TaskId
from headrace.errors import HeadraceError
from headrace.movers import CopiedCounts


@dataclass
class CommitCounts:
    """What came of storing progress, a claim's left out; it only grows. Any thread may read."""

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
    """One unit, as it is now."""

    id: TaskId
    status: ReplicationTaskStatus
    """What its next report would say."""
    copied: CopiedCounts | None = None
    """Of a source task."""
    commits: CommitCounts | None = None
    """Of a source task."""
    bandwidth_waited_s: float | None = None
    """Of a source task, with ``spec.bandwidth``: see ``Bandwidth.waited_s``."""
    taken: int = 0
    """See ``Contested.taken``."""
    restarts: int = 0
    """See ``Restarts.total``; that of the status begins again when the unit is stable."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Of a checkpoint task: see ``GroupCheckpoints.unread``."""
    translations: Mapping[str, int] = field(default_factory=dict)
    """Of a checkpoint task: see ``GroupCheckpoints.translations``."""
    beats: Mapping[str, float] = field(default_factory=dict)
    """Of a heartbeat task: see ``HeartbeatTask.beats``."""
