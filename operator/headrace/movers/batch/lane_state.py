"""State shared by a lane's two threads: the task's, which calls it, and the loop's, which copies.

It is guarded by ``lock``; no thread waits while it holds the lock.
"""

import threading
from collections.abc import Iterable

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.movers.batch.one_at_a_time import OneAtATime
from headrace.movers.batch.window import BatchWindow
from headrace.movers.lane import CopiedCounts, CopyFrom, Problem
from headrace.movers.transactions import TransactionStage

LANE_BYTES = 32 << 20
"""On the way to the target, of all partitions together; each has its share."""
MOST_BYTES, LEAST_BYTES = 8 << 20, 1 << 20
"""Limits of one partition's share."""
_STUCK_S = 1.0
LEASE_S = 0.5
"""Time for which it copies after each ``run_once``. A task that releases its unit, or that was
frozen, does not call it. A task's turn takes some 20 ms.
"""


class LaneState:
    """Methods need the lock, unless they say otherwise."""

    def __init__(self, copied: CopiedCounts) -> None:
        self.lock = threading.RLock()
        """The loop appends while it takes what was read, and may be called back then."""
        self.windows: dict[TopicPartition, BatchWindow] = {}
        self.by_target: dict[TopicPartition, BatchWindow] = {}
        self.ends: dict[TopicPartition, int] = {}
        """Ends of the source's logs at the last fetch."""
        self.suspects: dict[TopicPartition, OneAtATime] = {}
        self.paused: frozenset[TopicPartition] = frozenset()
        self.leaving: frozenset[TopicPartition] = frozenset()
        self.problems: dict[TopicPartition, Problem] = {}
        self.waiting_since_s: dict[TopicPartition, float] = {}
        """Time of the last acknowledgement of partitions with records in flight, on the loop's
        clock.
        """
        self.away: dict[str, None] = {}
        """Sentences about brokers, in order."""
        self.broken: HeadraceError | None = None
        """Error that concerns all partitions."""
        self.stage = TransactionStage.COPYING
        self._leased_until_s = 0.0
        self._rested = False
        self.ended = False
        """Nothing more is to be sent."""
        self.handed = 0
        """Records given to the appender so far."""
        self.copied = copied

    def open(
        self,
        at: TopicPartition,
        target: TopicPartition,
        position: CopyFrom,
        *,
        transactional: bool = False,
    ) -> None:
        """Add a partition."""
        window = BatchWindow(at, target, position, self.copied)
        if transactional:
            window.begin_transactions()
        self.windows[at] = self.by_target[target] = window
        if position.suspects:
            self.suspects[at] = OneAtATime(position.suspects)

    def forget(self, at: TopicPartition) -> None:
        """Remove a partition."""
        window = self.windows.pop(at)
        del self.by_target[window.target]
        for known in (self.problems, self.suspects, self.ends, self.waiting_since_s):
            known.pop(at, None)
        self.leaving -= {at}

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        """Record a problem; only the first one of each partition counts."""
        if at in self.windows:
            self.problems.setdefault(at, Problem(at, error))

    def lease(self, now_s: float) -> bool:
        """Extend the time to copy, without the lock; return whether the loop must be woken."""
        self._leased_until_s = now_s + LEASE_S
        rested, self._rested = self._rested, False
        return rested

    def end_lease(self) -> None:
        """Pause at once."""
        self._leased_until_s = 0.0

    def rests(self, now_s: float) -> bool:
        """Whether nothing may be read or taken. For the loop's thread, without the lock."""
        if self.stage is not TransactionStage.COPYING:
            return True
        if now_s <= self._leased_until_s:
            return False
        self._rested = True
        return now_s > self._leased_until_s  # it may have been renewed before that was seen

    def say(self, alias: str, why: object) -> None:
        """Record a sentence for the task; the method acquires the lock itself."""
        with self.lock:
            self.away[f"{alias}: {why}"] = None

    def wanted(self, at: TopicPartition) -> bool:
        """Whether it is to be copied, sooner or later. For the loop's thread, without the lock."""
        return (
            not self.ended
            and at in self.windows
            and at not in self.leaving
            and at not in self.paused
            and at not in self.problems
        )

    def readable(self, ats: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those that are ``wanted`` and have room for more. Without the lock."""
        if self.ended:
            return set()
        share = LANE_BYTES // max(1, len(self.waiting_since_s))
        room = max(LEAST_BYTES, min(MOST_BYTES, share))
        windows, suspects = self.windows, self.suspects
        out = self.leaving | self.paused | self.problems.keys()
        out |= {at for at, one in suspects.items() if one.waiting}
        return {
            at
            for at in ats
            if at not in out
            and (window := windows.get(at)) is not None
            and window.bytes_in_flight < room
        }

    def is_stuck(self, at: TopicPartition, now_s: float) -> bool:
        """Whether the target has taken nothing of it for a while; as ``wanted``."""
        since_s = self.waiting_since_s.get(at)
        return since_s is not None and now_s - since_s > _STUCK_S

    def all_stuck(self, now_s: float) -> bool:
        """Whether all that is in flight is of such partitions."""
        return all(now_s - since_s > _STUCK_S for since_s in self.waiting_since_s.values())
