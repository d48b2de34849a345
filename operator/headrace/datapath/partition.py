"""Partition that is open on a lane: its state, its ledger, and its search for rejected records."""

from collections.abc import Set
from enum import StrEnum

from headrace.api import TopicPartition
from headrace.datapath.lane import CopiedCounts, CopyFrom, Problem
from headrace.datapath.ledger import Ledger
from headrace.datapath.rebuild import OneAtATime
from headrace.errors import HeadraceError


class CopyState(StrEnum):
    """State of a partition that is open on a lane."""

    COPYING = "Copying"
    """The partition is read, and its records are sent."""
    PAUSED = "Paused"
    """The partition is not read. Acknowledgements of sent records count."""
    DRAINING = "Draining"
    """The partition leaves the lane. Nothing is read. Acknowledgements of sent records count."""
    STOPPED = "Stopped"
    """A problem ended the copy. The acknowledged offset stays valid. Another lane may continue."""
    CLOSED = "Closed"
    """The lane has no data of the partition anymore."""


TRANSITIONS: dict[CopyState, Set[CopyState]] = {
    CopyState.COPYING: {
        CopyState.PAUSED,
        CopyState.DRAINING,
        CopyState.STOPPED,
    },
    CopyState.PAUSED: {
        CopyState.COPYING,
        CopyState.DRAINING,
        CopyState.STOPPED,
    },
    CopyState.DRAINING: {
        CopyState.COPYING,
        CopyState.PAUSED,
        CopyState.STOPPED,
        CopyState.CLOSED,
    },
    CopyState.STOPPED: {CopyState.CLOSED},
    CopyState.CLOSED: frozenset(),
}
"""Legal transitions. ``docs/architecture.md`` shows them as a picture."""


class OpenPartition:
    """Partition that is open on a lane.

    The lock of the lane guards it. The loop's thread may read it without the lock.
    """

    __slots__ = ("_paused", "at", "end", "ledger", "problem", "state", "suspects")

    def __init__(
        self,
        at: TopicPartition,
        target: TopicPartition,
        start: CopyFrom,
        copied: CopiedCounts,
        *,
        transactional: bool,
    ) -> None:
        """Open a partition in state Copying.

        Args:
            at: Partition of the source.
            target: Partition of the target.
            start: Offset from which to copy.
            copied: Counts of all partitions of the task.
            transactional: Whether records count as copied only after a commit.
        """
        self.at = at
        self.state = CopyState.COPYING
        self.ledger = Ledger(at, target, start, copied)
        if transactional:
            self.ledger.begin_transactions()
        self.end: int | None = None
        """High watermark of the source at the last fetch; None before the first fetch."""
        self.problem: Problem | None = None
        """Problem of the partition; None if it is not stopped."""
        self.suspects = OneAtATime(start.suspects) if start.suspects else None
        """Search for records that the target rejects, or None."""
        self._paused = False

    @property
    def searching(self) -> bool:
        """Whether suspect records are queued. Nothing more is read until all of them are sent."""
        return self.suspects is not None and self.suspects.waiting

    def pause(self, paused: bool) -> None:
        """Pause or resume the partition. A partition that drains or is stopped stays so."""
        self._paused = paused
        if self.state in {CopyState.COPYING, CopyState.PAUSED}:
            self._go_on()

    def drain(self) -> None:
        """Read nothing more, because the partition leaves the lane."""
        if self.state is not CopyState.STOPPED:
            self._enter(CopyState.DRAINING)

    def keep(self) -> None:
        """Cancel ``drain``."""
        if self.state is CopyState.DRAINING:
            self._go_on()

    def stop(self, error: HeadraceError) -> None:
        """Stop the copy. Only the first problem is kept."""
        if self.problem is None:
            self.problem = Problem(self.at, error)
            self._enter(CopyState.STOPPED)

    def close(self) -> None:
        """Close a partition that has left."""
        self._enter(CopyState.CLOSED)

    def _go_on(self) -> None:
        self._enter(CopyState.PAUSED if self._paused else CopyState.COPYING)

    def _enter(self, state: CopyState) -> None:
        if state is self.state:
            return
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"a partition cannot go from {self.state} to {state}")
        self.state = state
