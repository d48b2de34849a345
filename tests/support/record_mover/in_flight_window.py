"""Records of one partition that are read, sent and acknowledged."""

from collections import deque

from headrace.api import TopicPartition
from headrace.datapath.lane import CopiedCounts
from headrace.datapath.transactions import CommitWindow, Mark
from headrace.kafka import KafkaError, Message, concerns_record

_DROPPED = {
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._FATAL,
    KafkaError._GAPLESS_GUARANTEE,
}
"""Reports of records that no broker refused: the producer stopped, or they were purged."""


class InFlightWindow(CommitWindow):
    """The window between the source's read position and the target's last acknowledgement.

    Flushless (Brooklin's word): no flush is waited for, and the position that may be stored is
    always the end of the acknowledged records without a gap. An idempotent producer acknowledges a
    partition in order, but reports dropped or refused records in any order. Each report is
    therefore bound to its source offset.
    """

    __slots__ = (
        "_early",
        "_floor",
        "_pending",
        "at",
        "bytes_in_flight",
        "copied",
        "error",
        "error_at",
        "leader_epoch",
        "lost_at",
        "refused",
        "target_offset",
        "target_topic",
    )

    def __init__(
        self,
        at: TopicPartition,
        position: int,
        target_topic: str,
        leader_epoch: int = -1,
        copied: CopiedCounts | None = None,
        *,
        floor: int = 0,
    ) -> None:
        super().__init__(position)
        self.at = at
        self.target_topic = target_topic
        self._pending: deque[tuple[int, int, int]] = deque()  # offset, timestamp ms, bytes
        self._early: dict[int, int | None] = {}
        """Target offsets, by source offset, of records acknowledged before an older one."""
        self.leader_epoch = leader_epoch
        self.target_offset: int | None = None
        """The target offset expected next; ``None`` before the first acknowledgement."""
        self._floor = floor
        self.lost_at: int | None = None
        """Target offset below acknowledged ones; no record is acknowledged from there on."""
        self.error: KafkaError | None = None
        """Why a record in flight was refused; nothing is acknowledged after that record."""
        self.error_at = position
        """Source offset of the refused record."""
        self.refused: range | None = None
        """Source offsets from the first to the last record that was refused.

        The reason is the record's own content, or another record of its batch.
        """
        self.bytes_in_flight = 0
        self.copied = copied or CopiedCounts()

    @property
    def acknowledged(self) -> int:
        """Offset below which all source records are on the target (or hold nothing to copy)."""
        return self._pending[0][0] if self._pending else self.position

    @property
    def lowest_possible(self) -> int:
        """The lowest target offset that the next record can get, unless the target lost some."""
        return self._floor if self.target_offset is None else self.target_offset

    @property
    def in_flight(self) -> int:
        """Records sent and not yet acknowledged."""
        return len(self._pending)

    @property
    def unfinished(self) -> int:
        return len(self._pending) + self.uncommitted

    def mark(self) -> Mark:
        return Mark(self.acknowledged, self.target_offset, self.leader_epoch)

    def rewind(self) -> None:
        self.position = self.acknowledged
        self._pending.clear()
        self._early.clear()
        self.bytes_in_flight = 0

    @property
    def oldest_timestamp_ms(self) -> int | None:
        if self.uncommitted:
            return self._uncommitted_ms
        return self._pending[0][1] if self._pending else self.last_timestamp_ms

    def sent(self, offset: int, timestamp_ms: int, size: int) -> None:
        self._pending.append((offset, timestamp_ms, size))
        self.position = offset + 1
        self.bytes_in_flight += size

    def passed(self, offset: int) -> None:
        self.position = max(self.position, offset)

    def passed_over(self, offset: int, leader_epoch: int | None) -> None:
        self.passed(offset + 1)
        self.leader_epoch = -1 if leader_epoch is None else leader_epoch

    def delivered(self, offset: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            # Dropped records are still pending: nothing is acknowledged after it.
            if error.code() not in _DROPPED:
                self.refuse(offset, error)
            return
        self._early[offset] = message.offset()
        while self._pending and self._pending[0][0] in self._early:
            target_offset = self._early[self._pending[0][0]]
            if target_offset is not None and target_offset < self.lowest_possible:
                self.lost_at = target_offset
                return
            offset, timestamp_ms, size = self._pending.popleft()
            self._acknowledge(offset, self._early.pop(offset), timestamp_ms, size)

    def refuse(self, offset: int, error: KafkaError) -> None:
        known = self.refused
        if not concerns_record(error):
            if self.error is None:
                self.error, self.error_at = error, offset
            return
        if known is None or offset < known.start:
            self.error, self.error_at = error, offset
        known = known or range(offset, offset + 1)
        self.refused = range(min(known.start, offset), max(known.stop, offset + 1))

    def _acknowledge(
        self, offset: int, target_offset: int | None, timestamp_ms: int, size: int
    ) -> None:
        if target_offset is not None:
            self.runs.add(offset, target_offset)
            self._count(1, timestamp_ms, target_offset, self.target_offset)
            self.target_offset = target_offset + 1
        self.bytes_in_flight -= size
        self.copied.records += 1
        self.copied.bytes += size
