"""What of one partition is read, sent and acknowledged, in batches."""

from collections import deque

from headrace.api import TopicPartition
from headrace.movers.batch.joining import TOGETHER_BYTES
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.commit_window import CommitWindow, Mark
from headrace.movers.lane import Copied, CopyFrom, TargetLoss
from headrace.replication import TargetSeen


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
        self, at: TopicPartition, target: TopicPartition, start: CopyFrom, copied: Copied
    ) -> None:
        """``target`` is the partition written to; ``copied`` counts for all of a task."""
        super().__init__(start.offset)
        self.at, self.target = at, target
        self.leader_epoch = start.leader_epoch
        """Of the last record read; -1 when unknown."""
        self.in_flight = 0
        """Records sent and not yet acknowledged."""
        self.bytes_in_flight = 0
        self.target_offset: int | None = None
        """What is acknowledged ends there; ``None`` before the first acknowledgement. The next
        record is expected there, or behind the markers of the lane's transactions."""
        self.target_seen: TargetSeen | None = None
        """See ``Reached``."""
        self.together_bytes = TOGETHER_BYTES
        """Of batches that become one; less once the target has found one too large."""
        self.lost: TargetLoss | None = None
        """The target gave an offset again; nothing is acknowledged from there on."""
        self._floor = start.target_offset
        self._pending: deque[tuple[int, int, int | None]] = (
            deque()
        )  # first, next offset, timestamp ms
        self._copied = copied

    @property
    def acknowledged(self) -> int:
        """All source offsets below this one are on the target (or hold nothing to copy)."""
        return self._pending[0][0] if self._pending else self.position

    @property
    def oldest_timestamp_ms(self) -> int | None:
        """Of the oldest batch not acknowledged, or not committed; else of the last that was."""
        if self.uncommitted:
            return self._uncommitted_ms
        return self._pending[0][2] if self._pending else self.last_timestamp_ms

    def sent(self, outgoing: Outgoing) -> None:
        """A batch was handed to the appender."""
        next_offset = outgoing.next_offset
        self._pending.append((outgoing.first_offset, next_offset, outgoing.max_timestamp_ms))
        self.position = next_offset
        self.leader_epoch = outgoing.leader_epoch
        self.in_flight += outgoing.records
        self.bytes_in_flight += outgoing.payload_bytes

    def passed(self, offset: int, leader_epoch: int) -> None:
        """The source holds nothing to copy below ``offset`` (markers, aborted records)."""
        if offset > self.position:
            self.position, self.leader_epoch = offset, leader_epoch

    def skipping(self, next_offset: int) -> None:
        """Offsets without a record, up to this one, are to be filled on the target."""
        timestamp_ms = self._pending[-1][2] if self._pending else self.last_timestamp_ms
        self._pending.append((self.position, next_offset, timestamp_ms))
        self.in_flight += next_offset - self.position
        self.position = next_offset

    def skipped(self, next_offset: int) -> int:
        """They are, so many; as on the source, all before them is acknowledged."""
        first, last, _ = self._pending.popleft()
        assert last == next_offset, (first, last, next_offset)
        self.in_flight -= next_offset - first
        self.target_offset = next_offset
        return next_offset - first

    def unsent(self, count: int, size: int) -> None:
        """The last so many batches and holes, of as many records as offsets and this size together,
        were not sent: they are read again."""
        for _ in range(count):
            self.position, next_offset, _ = self._pending.pop()
            self.in_flight -= next_offset - self.position
        self.bytes_in_flight -= size

    def delivered(self, outgoing: Outgoing, base_offset: int) -> None:
        """The target has it from that offset on."""
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
        while pending and pending[0][1] <= done:
            pending.popleft()
        if pending and pending[0][0] < done:  # a part of a batch that was split
            _, next_offset, timestamp_ms = pending[0]
            pending[0] = done, next_offset, timestamp_ms
            self.together_bytes = min(self.together_bytes, size)

    @property
    def unfinished(self) -> int:
        """See ``CommitWindow.unfinished``."""
        return self.in_flight + self.uncommitted

    def mark(self) -> Mark:
        """How far it is acknowledged."""
        return Mark(self.acknowledged, self.target_offset, self.leader_epoch, self.target_seen)

    def rewind(self) -> None:
        """Forget what was in flight: it is read again from what is acknowledged."""
        self.position = self.acknowledged
        self._pending.clear()
        self.in_flight = self.bytes_in_flight = 0
