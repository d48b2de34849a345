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
    """A batch or a hole that is not acknowledged."""

    first_offset: int
    next_offset: int
    timestamp_ms: int | None


class BatchWindow(CommitWindow):
    """The window between the source's read position and the target's last acknowledgement.

    Batches of a partition are acknowledged in order, so that the end of the last one is what may be
    stored. An appender may split a batch: its parts are acknowledged one by one.
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
        """``target`` is the partition written to; ``copied`` counts for all of a task."""
        super().__init__(start.offset)
        self.at, self.target = at, target
        self.leader_epoch = start.leader_epoch
        """Leader epoch of the last record read; -1 if unknown."""
        self.in_flight = 0
        """Records sent and not yet acknowledged."""
        self.bytes_in_flight = 0
        self.target_offset: int | None = None
        """Target offset after the acknowledged records; None before the first acknowledgement. The
        next record is expected there, or after the markers of the lane's transactions.
        """
        self.target_seen: TargetSeen | None = None
        """Acknowledged end that was confirmed with a leader's epoch, as in ``Reached``."""
        self.together_bytes = TOGETHER_BYTES
        """Size of batches that become one; smaller once the target has rejected one as too large.
        """
        self.lost: TargetLoss | None = None
        """The target gave an offset again; nothing is acknowledged from there on."""
        self._floor = start.target_offset
        self._pending: deque[_Sent | Span] = deque()
        self._copied = copied

    @property
    def acknowledged(self) -> int:
        """All source offsets below this one are on the target (or hold nothing to copy)."""
        return self._pending[0].first_offset if self._pending else self.position

    @property
    def oldest_timestamp_ms(self) -> int | None:
        """Return the timestamp of the oldest batch that is not acknowledged or committed.

        If there is none, it is the timestamp of the last one that was.
        """
        if self.uncommitted:
            return self._uncommitted_ms
        return self._pending[0].timestamp_ms if self._pending else self.last_timestamp_ms

    def sent(self, outgoing: Outgoing | Span) -> None:
        """Count a batch, or all batches of a span, that the appender has."""
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
        """Record that the source has nothing to copy below ``offset``: markers, aborted records."""
        if offset > self.position:
            self.position, self.leader_epoch = offset, leader_epoch

    def skipping(self, next_offset: int) -> None:
        """Offsets without a record, up to this one, are to be filled on the target."""
        timestamp_ms = self._pending[-1].timestamp_ms if self._pending else self.last_timestamp_ms
        self._pending.append(_Sent(self.position, next_offset, timestamp_ms))
        self.in_flight += next_offset - self.position
        self.position = next_offset

    def skipped(self, next_offset: int) -> int:
        """Record that a gap was skipped; return its size. All earlier records are acknowledged."""
        hole = self._pending.popleft()
        first, last = hole.first_offset, hole.next_offset
        assert last == next_offset, (first, last, next_offset)
        self.in_flight -= next_offset - first
        self.target_offset = next_offset
        return next_offset - first

    def unsent(self, count: int, size: int) -> None:
        """Drop the last ``count`` batches and gaps, which were not sent; they are read again.

        Together they have this size, and as many records as offsets.
        """
        for _ in range(count):
            dropped = self._pending.pop()
            self.position = dropped.first_offset
            self.in_flight -= dropped.next_offset - self.position
        self.bytes_in_flight -= size

    def delivered(self, outgoing: Outgoing, base_offset: int) -> None:
        """Record that the target has appended a batch from that offset on."""
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
        if pending and pending[0].first_offset < done:  # a part of a batch that was split
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
        """Count batches of spans that the target has, each in the window of its target partition.

        It does for each what ``delivered`` does for a batch by itself, without a call.
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
        """Number of records that are not finished."""
        return self.in_flight + self.uncommitted

    def mark(self) -> Mark:
        """How far it is acknowledged."""
        return Mark(self.acknowledged, self.target_offset, self.leader_epoch, self.target_seen)

    def rewind(self) -> None:
        """Forget what was in flight: it is read again from what is acknowledged."""
        self.position = self.acknowledged
        self._pending.clear()
        self.in_flight = self.bytes_in_flight = 0


# State shared by a lane's two threads: the task's, which calls it, and the loop's, which copies.
#
# It is guarded by ``lock``; no thread waits while it holds the lock.

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
        """Messages about unreachable brokers, in order of arrival (keys of a dict)."""
        self.broken: HeadraceError | None = None
        """Error that concerns all partitions."""
        self.stage = TransactionStage.COPYING
        self._leased_until_s = 0.0
        self._rested = False
        self.ended = False
        """Whether no more batches are sent."""
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
