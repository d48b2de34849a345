"""State that the two threads of a lane share.

The task's thread controls the lane, and the loop's thread copies. ``lock`` guards the state. No
thread waits while it holds the lock.
"""

import threading
from collections.abc import Iterable, Set

from headrace.api import TopicPartition
from headrace.datapath.lane import CopiedCounts, CopyFrom
from headrace.datapath.ledger import Ledger
from headrace.datapath.partition import CopyState, OpenPartition
from headrace.datapath.transactions import STAGES, TransactionStage
from headrace.errors import HeadraceError

LANE_BYTES = 32 << 20
"""Maximum size in bytes of a lane's data in flight. It is divided between its partitions."""
MAX_BYTES, MIN_BYTES = 8 << 20, 1 << 20
"""Maximum and minimum share of one partition, in bytes."""
_STUCK_S = 1.0
LEASE_S = 0.5
"""Time in seconds for which a lane copies after each ``run_once``. A task calls ``run_once`` about
every 20 ms. The lane of a task that releases its unit, or is frozen, stops after this time."""


class LaneState:
    """State of a lane. A method needs the lock unless its docstring says otherwise."""

    def __init__(self, copied: CopiedCounts) -> None:
        self.lock = threading.RLock()
        """Lock of this state. It is reentrant, because the appender may call the lane back while
        the loop's thread passes data to the appender."""
        self.partitions: dict[TopicPartition, OpenPartition] = {}
        """Open partitions, by partition of the source."""
        self.ledgers: dict[TopicPartition, Ledger] = {}
        """Ledgers of the open partitions, by partition of the target."""
        self.stopped: list[OpenPartition] = []
        """Stopped partitions; the first problem comes first."""
        self._paused: Set[TopicPartition] = frozenset()
        self.waiting_since_s: dict[TopicPartition, float] = {}
        """Time of the last acknowledgement, on the loop's clock, of partitions with records in
        flight."""
        self.away: dict[str, None] = {}
        """Messages about unreachable brokers, in order of arrival. The values of the dict are not
        used."""
        self.broken: HeadraceError | None = None
        """Error that concerns all partitions."""
        self.stage = TransactionStage.COPYING
        """Stage of the lane's transaction. It never changes in a lane without transactions."""
        self._leased_until_s = 0.0
        self._rested = False
        self.ended = False
        """Whether no more batches are sent."""
        self.handed = 0
        """Number of records given to the appender."""
        self.copied = copied

    def open(
        self,
        at: TopicPartition,
        target: TopicPartition,
        position: CopyFrom,
        *,
        transactional: bool = False,
    ) -> None:
        partition = OpenPartition(at, target, position, self.copied, transactional=transactional)
        partition.pause(at in self._paused)
        self.partitions[at] = partition
        self.ledgers[target] = partition.ledger

    def pause(self, paused: Set[TopicPartition]) -> tuple[set[OpenPartition], bool]:
        """Pause exactly these partitions.

        Return the partitions that this call pauses, and whether it resumes any.
        """
        before, self._paused = self._paused, frozenset(paused)
        known = self.partitions
        for at in (before ^ paused) & known.keys():
            known[at].pause(at in paused)
        return {known[at] for at in (paused - before) & known.keys()}, bool(before - paused)

    def forget(self, at: TopicPartition) -> None:
        partition = self.partitions.pop(at)
        partition.close()
        del self.ledgers[partition.ledger.target]
        self.waiting_since_s.pop(at, None)
        if partition in self.stopped:
            self.stopped.remove(partition)

    def stop(self, at: TopicPartition, error: HeadraceError) -> None:
        """Stop a partition because of a problem. Only the first problem is kept."""
        partition = self.partitions.get(at)
        if partition is not None and partition.problem is None:
            partition.stop(error)
            self.stopped.append(partition)

    def enter(self, stage: TransactionStage) -> None:
        """Enter a stage of the transaction.

        Raises:
            ValueError: ``STAGES`` does not contain this transition.
        """
        if stage not in STAGES[self.stage]:
            raise ValueError(f"a transaction cannot go from {self.stage} to {stage}")
        self.stage = stage

    def lease(self, now_s: float) -> bool:
        """Allow copying for ``LEASE_S``, and return whether the loop must be woken.

        The call does not need the lock.
        """
        self._leased_until_s = now_s + LEASE_S
        rested, self._rested = self._rested, False
        return rested

    def end_lease(self) -> None:
        """Stop copying at once, until the next ``lease``."""
        self._leased_until_s = 0.0

    def rests(self, now_s: float) -> bool:
        """Return whether nothing may be read or accepted now.

        The call does not need the lock. Call it in the loop's thread.
        """
        if self.stage is not TransactionStage.COPYING:
            return True
        if now_s <= self._leased_until_s:
            return False
        self._rested = True
        return now_s > self._leased_until_s  # the task may have extended the lease in between

    def say(self, alias: str, why: object) -> None:
        """Record a message for the task. The method acquires the lock itself."""
        with self.lock:
            self.away[f"{alias}: {why}"] = None

    def copies(self, at: TopicPartition) -> bool:
        """Return whether a partition is being copied.

        The call does not need the lock. Call it in the loop's thread.
        """
        partition = self.partitions.get(at)
        return not self.ended and partition is not None and partition.state is CopyState.COPYING

    def readable(self, ats: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that may be read and whose share of data in flight is not used up.

        The call does not need the lock.
        """
        if self.ended:
            return set()
        share = LANE_BYTES // max(1, len(self.waiting_since_s))
        room = max(MIN_BYTES, min(MAX_BYTES, share))
        partitions, copying = self.partitions, CopyState.COPYING
        return {
            at
            for at in ats
            if (partition := partitions.get(at)) is not None
            and partition.state is copying
            and partition.ledger.bytes_in_flight < room
            and not partition.searching
        }

    def is_stuck(self, at: TopicPartition, now_s: float) -> bool:
        """Return whether a partition with records in flight got no acknowledgement for a second.

        The call does not need the lock.
        """
        since_s = self.waiting_since_s.get(at)
        return since_s is not None and now_s - since_s > _STUCK_S

    def all_stuck(self, now_s: float) -> bool:
        """Return whether every partition with records in flight is stuck."""
        return all(now_s - since_s > _STUCK_S for since_s in self.waiting_since_s.values())

    def acknowledged(self, ledger: Ledger, now_s: float) -> None:
        """Record an acknowledgement from the target."""
        if ledger.in_flight:
            self.waiting_since_s[ledger.at] = now_s
        else:
            self.waiting_since_s.pop(ledger.at, None)
