"""Ledger of each partition: batches that are read, sent and acknowledged."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.datapath.chunk import TOGETHER_BYTES
from headrace.datapath.lane import CopiedCounts, CopyFrom, TargetLoss
from headrace.datapath.producer import Entry
from headrace.datapath.spans import Outgoing, Span
from headrace.datapath.transactions import CommitLedger, Mark
from headrace.kafka.wire import HEADER_BYTES
from headrace.kafka.wire.scan import BASE, COLUMNS, LAST, MAX_TIMESTAMP, RECORDS
from headrace.replication import TargetSeen


class _Sent(NamedTuple):
    """Batch or hole that is not acknowledged."""

    first_offset: int
    next_offset: int
    timestamp_ms: int | None
    epoch_before: int
    """Leader epoch of the offset before ``first_offset``; -1 if unknown."""


class Ledger(CommitLedger):
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
        """Create a ledger without records in flight.

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
        next record is expected at this offset, or after the markers of the lane's transactions."""
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
        """Count records that were given to the appender: a batch, or all batches of a span."""
        first, next_offset = outgoing.first_offset, outgoing.next_offset
        # Offsets that were left out before the first record may have its epoch. A higher epoch than
        # theirs does no harm, but with a lower one the broker reports a truncated log.
        epoch_before = self.leader_epoch if first <= self.position else outgoing.leader_epoch
        if isinstance(outgoing, Span):
            outgoing.epoch_before = epoch_before
            self._pending.append(outgoing)
        else:
            newest_ms = outgoing.max_timestamp_ms
            self._pending.append(_Sent(first, next_offset, newest_ms, epoch_before))
        self.position = next_offset
        self.leader_epoch = outgoing.leader_epoch
        self.in_flight += outgoing.records
        self.bytes_in_flight += outgoing.payload_bytes

    def passed(self, offset: int, leader_epoch: int) -> None:
        """Record that no record below ``offset`` remains to be sent."""
        if offset > self.position:
            self.position, self.leader_epoch = offset, leader_epoch

    def skipping(self, next_offset: int, leader_epoch: int | None) -> None:
        """Record that the offsets up to ``next_offset``, which have no record, must be filled.

        ``leader_epoch`` is that of their end, or None if it is unknown.
        """
        timestamp_ms = self._pending[-1].timestamp_ms if self._pending else self.last_timestamp_ms
        self._pending.append(_Sent(self.position, next_offset, timestamp_ms, self.leader_epoch))
        self.in_flight += next_offset - self.position
        self.position = next_offset
        if leader_epoch is not None:
            self.leader_epoch = leader_epoch

    def skipped(self, next_offset: int) -> int:
        """Record that the oldest hole was filled; return its number of offsets.

        Call it after the acknowledgement of all earlier records.
        """
        hole = self._pending.popleft()
        first, last = hole.first_offset, hole.next_offset
        assert last == next_offset, (first, last, next_offset)
        self.in_flight -= next_offset - first
        self.target_offset = next_offset
        return next_offset - first

    def unsent(self, count: int, size: int) -> None:
        """Drop the last ``count`` batches and holes, which were not sent; they are read again.

        ``size`` is the total size of the batches in bytes. The batches must have as many records as
        offsets.
        """
        for _ in range(count):
            dropped = self._pending.pop()
            self.position, self.leader_epoch = dropped.first_offset, dropped.epoch_before
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
                pending[0] = first._replace(first_offset=done, epoch_before=outgoing.leader_epoch)
            self.together_bytes = min(self.together_bytes, size)

    @staticmethod
    def rows_delivered(
        entries: Sequence[Entry], ledgers: Mapping[TopicPartition, "Ledger"]
    ) -> None:
        """Count appended batches of spans, each in the ledger of its target partition.

        This does the work of ``delivered`` for each batch, without a call for each.
        """
        for entry in entries:
            ledger, span = ledgers.get(entry.queue.at), entry.source
            if ledger is None or ledger.lost is not None or not isinstance(span, Span):
                continue
            base_offset, expected = entry.base_offset, ledger.target_offset
            lowest = ledger._floor if expected is None else expected
            if base_offset < lowest:
                ledger.lost = TargetLoss(ledger.at, base_offset, lowest)
                continue
            rows, at = span.rows, entry.row * COLUMNS
            records, first_offset = rows[at + RECORDS], rows[at + BASE]
            if expected is not None and base_offset != expected + ledger._markers:
                ledger.unexpected_offsets += 1
            ledger._markers = 0
            timestamp_ms = ledger.last_timestamp_ms = rows[at + MAX_TIMESTAMP]
            if ledger.committed is not None:
                if not ledger.uncommitted:
                    ledger._uncommitted_ms = timestamp_ms
                ledger.uncommitted += records
            runs = ledger.runs
            count = runs.records
            if first_offset == runs.source + count and base_offset == runs.target + count:
                runs.records = count + records
            else:
                runs.add(first_offset, base_offset, records)
            size = entry.size - HEADER_BYTES
            ledger.target_offset = base_offset + records
            ledger.in_flight -= records
            ledger.bytes_in_flight -= size
            ledger._copied.records += records
            ledger._copied.bytes += size
            span.first_offset = rows[at + LAST] + 1
            span.acknowledged, span.epoch_before = entry.row + 1, span.leader_epoch
            pending = ledger._pending
            while pending and pending[0].next_offset <= span.first_offset:
                pending.popleft()

    @property
    def unfinished(self) -> int:
        """Number of records that are in flight or not committed."""
        return self.in_flight + self.uncommitted

    def mark(self) -> Mark:
        epoch = self._pending[0].epoch_before if self._pending else self.leader_epoch
        return Mark(self.acknowledged, self.target_offset, epoch, self.target_seen)

    def rewind(self) -> None:
        """Forget the records in flight. They are read again from the acknowledged offset on."""
        self.position, _, self.leader_epoch, _ = self.mark()
        self._pending.clear()
        self.in_flight = self.bytes_in_flight = 0
