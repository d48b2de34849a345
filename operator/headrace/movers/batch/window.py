"""What of one partition is read, sent and acknowledged, in batches."""

from collections import deque

from headrace.api import TopicPartition
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.lane import Copied, CopyFrom, TargetLoss
from headrace.replication import TargetSeen
from headrace.replication.copied_runs import CopiedRuns


class BatchWindow:
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
        "last_timestamp_ms",
        "leader_epoch",
        "lost",
        "position",
        "runs",
        "target",
        "target_offset",
        "target_seen",
        "unexpected_offsets",
    )

    def __init__(
        self, at: TopicPartition, target: TopicPartition, start: CopyFrom, copied: Copied
    ) -> None:
        """``target`` is the partition written to; ``copied`` counts for all of a task."""
        self.at, self.target = at, target
        self.position = start.offset
        """The next source offset to read."""
        self.leader_epoch = start.leader_epoch
        """Of the last record read; -1 when unknown."""
        self.in_flight = 0
        """Records sent and not yet acknowledged."""
        self.bytes_in_flight = 0
        self.target_offset: int | None = None
        """The target offset expected next; ``None`` before the first acknowledgement."""
        self.target_seen: TargetSeen | None = None
        """See ``Reached``."""
        self.unexpected_offsets = 0
        """How often a batch had not the expected offset: a foreign writer."""
        self.last_timestamp_ms: int | None = None
        self.lost: TargetLoss | None = None
        """The target gave an offset again; nothing is acknowledged from there on."""
        self.runs = CopiedRuns()
        self._floor = start.target_offset
        self._pending: deque[tuple[int, int, int]] = deque()  # first, next offset, timestamp ms
        self._copied = copied

    @property
    def acknowledged(self) -> int:
        """All source offsets below this one are on the target (or hold nothing to copy)."""
        return self._pending[0][0] if self._pending else self.position

    @property
    def oldest_timestamp_ms(self) -> int | None:
        """Of the oldest batch not acknowledged, else of the last that was."""
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

    def delivered(self, outgoing: Outgoing, base_offset: int) -> None:
        """The target has it from that offset on."""
        lowest = self._floor if self.target_offset is None else self.target_offset
        if self.lost is not None:
            return
        if base_offset < lowest:
            self.lost = TargetLoss(self.at, base_offset, lowest)
            return
        if self.target_offset is not None and base_offset != self.target_offset:
            self.unexpected_offsets += 1
        records, size = outgoing.records, outgoing.payload_bytes
        if outgoing.offsets is None:
            self.runs.add(outgoing.first_offset, base_offset, records)
        else:
            for target, source in enumerate(outgoing.offsets, base_offset):
                self.runs.add(source, target)
        self.target_offset = base_offset + records
        self.last_timestamp_ms = outgoing.max_timestamp_ms
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

    def rewind(self) -> None:
        """Forget what was in flight: it is read again from what is acknowledged."""
        self.position = self.acknowledged
        self._pending.clear()
        self.in_flight = self.bytes_in_flight = 0
