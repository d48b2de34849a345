"""Committed and uncommitted records of one partition of a lane that copies in transactions."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from headrace.replication import TargetSeen
from headrace.replication.progress import ContiguousRange, CopiedRuns


class Mark(NamedTuple):
    """How far a partition is copied: see ``Reached``."""

    acknowledged: int
    target_offset: int | None
    leader_epoch: int
    target_seen: TargetSeen | None = None


class CommitWindow(ABC):
    """Acknowledged and committed records of one partition.

    In a lane without transactions ``committed`` is None: acknowledged records count as copied.
    """

    __slots__ = (
        "_committed_runs",
        "_cut_runs",
        "_markers",
        "_uncommitted_ms",
        "committed",
        "last_timestamp_ms",
        "position",
        "runs",
        "uncommitted",
        "unexpected_offsets",
    )

    def __init__(self, position: int) -> None:
        self.position = position
        """The next source offset to read."""
        self.runs = CopiedRuns()
        self.committed: Mark | None = None
        """Mark of the last transaction, in a lane that copies in transactions."""
        self.uncommitted = 0
        """Records acknowledged since."""
        self.unexpected_offsets = 0
        """How often an acknowledged target offset was not the expected one: a foreign writer."""
        self.last_timestamp_ms: int | None = None
        """Timestamp of the last acknowledged record."""
        self._uncommitted_ms: int | None = None
        self._markers = 0
        """Number of transaction markers after the last record on the target."""
        self._cut_runs: list[ContiguousRange] = []
        self._committed_runs: list[ContiguousRange] = []

    @abstractmethod
    def mark(self) -> Mark:
        """How far it is acknowledged."""

    @property
    @abstractmethod
    def unfinished(self) -> int:
        """Records that are sent, and not yet acknowledged, or not committed."""

    @property
    def done(self) -> Mark:
        """How far it is copied: acknowledged, or committed."""
        return self.committed or self.mark()

    @property
    def changed(self) -> bool:
        """Whether a transaction would commit more than the last one has."""
        return self.committed is not None and self.committed.acknowledged != self.position

    def begin_transactions(self) -> None:
        """Count records as copied only after their commit from now on."""
        self.committed = self.mark()

    def commit(self, *, marked: bool) -> None:
        """All that is sent, which is acknowledged, is committed; ``marked``: with a marker here."""
        self.committed, self.uncommitted = self.mark(), 0
        self._committed_runs += self.cut_runs()
        self._cut_runs = []
        # It takes an offset. But who acknowledges it, and in which leader epoch, is not known here:
        # a leader that dies now may lose it, and the next one write it again.
        self._markers += marked

    def cut_runs(self) -> list[ContiguousRange]:
        """Return the ranges that are acknowledged and not committed."""
        self._cut_runs += self.runs.take()
        return self._cut_runs

    def take_runs(self) -> list[ContiguousRange]:
        if self.committed is None:
            return self.runs.take()
        taken, self._committed_runs = self._committed_runs, []
        return taken

    def _count(self, records: int, timestamp_ms: int, at: int, expected: int | None) -> None:
        """Count more acknowledged records from ``at``, an offset of the target."""
        if expected is not None and at != expected + self._markers:
            self.unexpected_offsets += 1
        self._markers = 0
        self.last_timestamp_ms = timestamp_ms
        if self.committed is not None:
            if not self.uncommitted:
                self._uncommitted_ms = timestamp_ms
            self.uncommitted += records
