"""Ledger of each partition: batches that are read, sent and acknowledged."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.datapath.chunk import TOGETHER_BYTES
from headrace.datapath.lane import CopiedCounts, CopyFrom, Problem, TargetLoss
from headrace.datapath.producer import Entry
from headrace.datapath.rebuild import OneAtATime
from headrace.datapath.spans import Outgoing, Span
from headrace.datapath.transactions import CommitWindow, Mark, TransactionStage
from headrace.errors import HeadraceError
from headrace.kafka.wire import HEADER_BYTES
from headrace.kafka.wire.scan import BASE, COLUMNS, LAST, MAX_TIMESTAMP, RECORDS
from headrace.replication import TargetSeen


class _Sent(NamedTuple):
    """Batch or hole that is not acknowledged."""

    first_offset: int
    next_offset: int
    timestamp_ms: int | None


class BatchWindow(CommitWindow):
    """Records between the acknowledged source offset and the read position.

    Batches of a partition are acknowledged in order, so the end of the last acknowledged batch can
    be stored as progress. An appender may split a batch; its parts are acknowledged one by one.
    """

    __slots__ = (
        "_copied",
        "_floor",
        "_pending",
        "at",
        "bytes_in_flight",
        "in_flight",
        "leader_epoch",
        "lost",
        "target",
        "target_offset",
        "target_seen",
        "together_bytes",
    )

    def __init__(
        self, at: TopicPartition, target: TopicPartition, start: CopyFrom, copied: CopiedCounts
    ) -> None:
        """Create a window without records in flight.

        Args:
            at: Partition of the source.
            target: Partition of the target.
            start: Offset from which to copy.
            copied: Counts of all partitions of the task.
        """
        super().__init__(start.offset)
        self.at, self.target = at, target
        self.leader_epoch = start.leader_epoch
        """Leader epoch of the last record read; -1 if unknown."""
        self.in_flight = 0
        """Number of records sent and not yet acknowledged."""
        self.bytes_in_flight = 0
        self.target_offset: int | None = None
        """Target offset after the acknowledged records; None before the first acknowledgement. The
        next record is expected there, or after the markers of the lane's transactions."""
        self.target_seen: TargetSeen | None = None
        """Acknowledged target end that was confirmed with the leader's epoch, as in ``Reached``."""
        self.together_bytes = TOGETHER_BYTES
        """Maximum size in bytes of a batch joined from several; it decreases when the target
        rejects a batch as too large."""
        self.lost: TargetLoss | None = None
        """Error if the target assigned an offset twice. Nothing is acknowledged afterwards."""
        self._floor = start.target_offset
        self._pending: deque[_Sent | Span] = deque()
        self._copied = copied

    @property
    def acknowledged(self) -> int:
        """Source offset below which all records are on the target, or are not to be copied."""
        return self._pending[0].first_offset if self._pending else self.position

    @property
    def oldest_timestamp_ms(self) -> int | None:
        """Timestamp, in ms, of the oldest batch that is not acknowledged or committed.

        If there is none, it is the timestamp of the last acknowledged or committed batch.
        """
        if self.uncommitted:
            return self._uncommitted_ms
        return self._pending[0].timestamp_ms if self._pending else self.last_timestamp_ms

    def sent(self, outgoing: Outgoing | Span) -> None:
        """Count a batch, or all batches of a span, that was given to the appender."""
        next_offset = outgoing.next_offset
        if isinstance(outgoing, Span):
            self._pending.append(outgoing)
        else:
            newest_ms = outgoing.max_timestamp_ms
            self._pending.append(_Sent(outgoing.first_offset, next_offset, newest_ms))
        self.position = next_offset
        self.leader_epoch = outgoing.leader_epoch
        self.in_flight += outgoing.records
        self.bytes_in_flight += outgoing.payload_bytes

    def passed(self, offset: int, leader_epoch: int) -> None:
        """Record that the source has nothing to copy below ``offset``, such as aborted records."""
        if offset > self.position:
            self.position, self.leader_epoch = offset, leader_epoch

    def skipping(self, next_offset: int) -> None:
        """Record that the offsets up to ``next_offset``, which have no record, must be filled."""
        timestamp_ms = self._pending[-1].timestamp_ms if self._pending else self.last_timestamp_ms
        self._pending.append(_Sent(self.position, next_offset, timestamp_ms))
        self.in_flight += next_offset - self.position
        self.position = next_offset

    def skipped(self, next_offset: int) -> int:
        """Record that the oldest hole was filled; return its number of offsets.

        All earlier records are acknowledged.
        """
        hole = self._pending.popleft()
        first, last = hole.first_offset, hole.next_offset
        assert last == next_offset, (first, last, next_offset)
        self.in_flight -= next_offset - first
        self.target_offset = next_offset
        return next_offset - first

    def unsent(self, count: int, size: int) -> None:
        """Drop the last ``count`` batches and holes, which were not sent; they are read again.

        ``size`` is their total size in bytes. They must have as many records as offsets.
        """
        for _ in range(count):
            dropped = self._pending.pop()
            self.position = dropped.first_offset
            self.in_flight -= dropped.next_offset - self.position
        self.bytes_in_flight -= size

    def delivered(self, outgoing: Outgoing, base_offset: int) -> None:
        """Record that the target has appended a batch at the offsets from ``base_offset`` on."""
        lowest = self._floor if self.target_offset is None else self.target_offset
        if self.lost is not None:
            return
        if base_offset < lowest:
            self.lost = TargetLoss(self.at, base_offset, lowest)
            return
        records, size = outgoing.records, outgoing.payload_bytes
        self._count(records, outgoing.max_timestamp_ms, base_offset, self.target_offset)
        if outgoing.offsets is None:
            self.runs.add(outgoing.first_offset, base_offset, records)
        else:
            for target, source in enumerate(outgoing.offsets, base_offset):
                self.runs.add(source, target)
        self.target_offset = base_offset + records
        self.in_flight -= records
        self.bytes_in_flight -= size
        self._copied.records += records
        self._copied.bytes += size
        pending, done = self._pending, outgoing.next_offset
        while pending and pending[0].next_offset <= done:
            pending.popleft()
        if pending and pending[0].first_offset < done:  # a part of a split batch
            first = pending[0]
            if isinstance(first, Span):
                first.split_until(done)
            else:
                pending[0] = first._replace(first_offset=done)
            self.together_bytes = min(self.together_bytes, size)

    @staticmethod
    def rows_delivered(
        entries: Sequence[Entry], windows: Mapping[TopicPartition, "BatchWindow"]
    ) -> None:
        """Count appended batches of spans, each in the window of its target partition.

        This does the work of ``delivered`` for each batch, without a call for each.
        """
        for entry in entries:
            window, span = windows.get(entry.queue.at), entry.source
            if window is None or window.lost is not None or not isinstance(span, Span):
                continue
            base_offset, expected = entry.base_offset, window.target_offset
            lowest = window._floor if expected is None else expected
            if base_offset < lowest:
                window.lost = TargetLoss(window.at, base_offset, lowest)
                continue
            rows, at = span.rows, entry.row * COLUMNS
            records, first_offset = rows[at + RECORDS], rows[at + BASE]
            if expected is not None and base_offset != expected + window._markers:
                window.unexpected_offsets += 1
            window._markers = 0
            timestamp_ms = window.last_timestamp_ms = rows[at + MAX_TIMESTAMP]
            if window.committed is not None:
                if not window.uncommitted:
                    window._uncommitted_ms = timestamp_ms
                window.uncommitted += records
            runs = window.runs
            count = runs.records
            if first_offset == runs.source + count and base_offset == runs.target + count:
                runs.records = count + records
            else:
                runs.add(first_offset, base_offset, records)
            size = entry.size - HEADER_BYTES
            window.target_offset = base_offset + records
            window.in_flight -= records
            window.bytes_in_flight -= size
            window._copied.records += records
            window._copied.bytes += size
            span.first_offset = rows[at + LAST] + 1
            span.acknowledged = entry.row + 1
            pending = window._pending
            while pending and pending[0].next_offset <= span.first_offset:
                pending.popleft()

    @property
    def unfinished(self) -> int:
        """Number of records that are in flight or not committed."""
        return self.in_flight + self.uncommitted

    def mark(self) -> Mark:
        return Mark(self.acknowledged, self.target_offset, self.leader_epoch, self.target_seen)

    def rewind(self) -> None:
        """Forget the records in flight. They are read again from the acknowledged offset on."""
        self.position = self.acknowledged
        self._pending.clear()
        self.in_flight = self.bytes_in_flight = 0


# State shared by a lane's two threads: the task's thread, which controls the lane, and the loop's
# thread, which copies. ``lock`` guards the state. No thread waits while it holds the lock.

LANE_BYTES = 32 << 20
"""Maximum size in bytes of a lane's data in flight. It is divided between its partitions."""
MOST_BYTES, LEAST_BYTES = 8 << 20, 1 << 20
"""Maximum and minimum share of one partition, in bytes."""
_STUCK_S = 1.0
LEASE_S = 0.5
"""Time for which a lane copies after each ``run_once``. A task that releases its unit, or a frozen
task, does not call ``run_once``. A task calls it about every 20 ms."""


class LaneState:
    """State of a lane. A method needs the lock unless its docstring says otherwise."""

    def __init__(self, copied: CopiedCounts) -> None:
        self.lock = threading.RLock()
        """Reentrant, because the appender may call back while the loop's thread passes data to
        it."""
        self.windows: dict[TopicPartition, BatchWindow] = {}
        self.by_target: dict[TopicPartition, BatchWindow] = {}
        self.ends: dict[TopicPartition, int] = {}
        """High watermarks of source partitions at the last fetch."""
        self.suspects: dict[TopicPartition, OneAtATime] = {}
        self.paused: frozenset[TopicPartition] = frozenset()
        self.leaving: frozenset[TopicPartition] = frozenset()
        self.problems: dict[TopicPartition, Problem] = {}
        self.waiting_since_s: dict[TopicPartition, float] = {}
        """Time of the last acknowledgement, on the loop's clock, of partitions with records in
        flight."""
        self.away: dict[str, None] = {}
        """Messages about unreachable brokers, in order of arrival. The values of the dict are not
        used."""
        self.broken: HeadraceError | None = None
        """Error that concerns all partitions."""
        self.stage = TransactionStage.COPYING
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
        window = BatchWindow(at, target, position, self.copied)
        if transactional:
            window.begin_transactions()
        self.windows[at] = self.by_target[target] = window
        if position.suspects:
            self.suspects[at] = OneAtATime(position.suspects)

    def forget(self, at: TopicPartition) -> None:
        window = self.windows.pop(at)
        del self.by_target[window.target]
        for known in (self.problems, self.suspects, self.ends, self.waiting_since_s):
            known.pop(at, None)
        self.leaving -= {at}

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        """Record a problem. Only the first one of each partition is kept."""
        if at in self.windows:
            self.problems.setdefault(at, Problem(at, error))

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

    def wanted(self, at: TopicPartition) -> bool:
        """Return whether a partition is open and neither paused, leaving nor failed.

        The call does not need the lock. Call it in the loop's thread.
        """
        return (
            not self.ended
            and at in self.windows
            and at not in self.leaving
            and at not in self.paused
            and at not in self.problems
        )

    def readable(self, ats: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that may be read and whose share of data in flight is not used up.

        The call does not need the lock.
        """
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
        """Return whether a partition with records in flight got no acknowledgement for a second.

        The call does not need the lock.
        """
        since_s = self.waiting_since_s.get(at)
        return since_s is not None and now_s - since_s > _STUCK_S

    def all_stuck(self, now_s: float) -> bool:
        """Return whether every partition with records in flight is stuck."""
        return all(now_s - since_s > _STUCK_S for since_s in self.waiting_since_s.values())
