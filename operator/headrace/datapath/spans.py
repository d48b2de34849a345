"""Spans of fetched batches, and the batches that are to be appended.

The reader of the source creates ``Outgoing``. The appender to the target answers each of them once.
Both run in the thread of one ``Loop``; an ``Appender`` calls back from ``flush`` or from the loop.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    HEADER_BYTES,
    Batch,
    ProducerIdentity,
    Scanned,
    batch_at,
    stamp,
)
from headrace.kafka.wire.scan import (
    BASE,
    COLUMNS,
    LAST,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    RUN_BYTES,
    RUN_COLUMNS,
    RUN_FIRST,
    RUN_RECORDS,
    RUN_ROWS,
)


class Outgoing(NamedTuple):
    """A batch for the target, in the order of its partition.

    The target's log keeps its records as they are. The appender replaces what of the header belongs
    to a log or a producer: offset, leader epoch, producer, sequence, bits of transactions.
    """

    batch: Batch
    """Batch as it was fetched, or rebuilt. It has at least one record, and as many offsets as
    records.
    """
    next_offset: int
    """Source offset at which reading continues once this is acknowledged."""
    release: Callable[[], None]
    """Called once, after ``Acknowledged`` or ``Failed``, or when it is dropped: the memory of
    ``batch`` may be used again."""
    offsets: Sequence[int] | None = None
    """Source offset of each record of a rebuilt batch. None: ``batch.base_offset`` and the offsets
    that follow it without a gap.
    """
    level: int | None = None
    """Compression level of a rebuilt batch. None: the codec's default."""

    @property
    def first_offset(self) -> int:
        """Source offset of its first record."""
        return self.offsets[0] if self.offsets else self.batch.base_offset

    @property
    def records(self) -> int:
        """How many it has; more than 0."""
        return self.batch.record_count

    @property
    def payload_bytes(self) -> int:
        """Size of its records as they are sent: compressed, without the header of the batch."""
        return self.batch.payload_bytes

    @property
    def leader_epoch(self) -> int:
        """Epoch of the source's leader that appended it; -1 if unknown."""
        return self.batch.leader_epoch

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp of its records; -1: none."""
        return self.batch.max_timestamp

    def source_offset(self, index: int) -> int:
        """Return the source offset of its record with this index."""
        return self.batch.base_offset + index if self.offsets is None else self.offsets[index]


class Sending(Protocol):
    """Appender of all partitions, called in the thread of its loop."""

    @property
    def pending(self) -> int:
        """Number of records that are not acknowledged."""
        ...

    def flush(self) -> None:
        """Send what may be sent, without waiting."""
        ...

    def drop_unsent(self) -> None:
        """``pending`` becomes 0 once the outcome of what was sent is known."""
        ...

    def close(self) -> None:
        """Drop all: what is in flight may be appended, or not."""
        ...


class Acknowledged(Protocol):
    """Called in the order of ``append`` for each partition."""

    def __call__(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        """Receive an acknowledgement of all in-sync replicas of the target.

        Its records have the target offsets from ``base_offset`` on, without a gap.
        """
        ...


class Failed(Protocol):
    """Called at most once for a partition, after the last ``Acknowledged`` of it."""

    def __call__(self, at: TopicPartition, error: HeadraceError) -> None:
        """Receive the failure of a partition; everything unacknowledged is dropped.

        The error is ``BatchRefused``, ``BatchCorrupt`` or ``Indefinite``, or the target's reason to
        reject the partition, such as a missing permission. Errors that may pass by themselves, such
        as a partition without a leader, are not reported here: batches are sent again until they
        are acknowledged.
        """
        ...


class BatchRefused(Fatal):
    """The target takes no record with this content, or one of a batch: none of it is appended."""

    def __init__(self, at: TopicPartition, offsets: range, code: str, message: str) -> None:
        """Create the error.

        Args:
            at: Partition of the source.
            offsets: Source offsets from the first to the last rejected record, as far as the target
                names them.
            code: Name of the error in the protocol.
            message: Sentence about the error.
        """
        super().__init__(message)
        self.at, self.offsets, self.code = at, offsets, code


class BatchCorrupt(Retriable):
    """The checksum of a fetched batch is wrong: fetch it again. None of it is appended."""

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """``offset``: of the source."""
        super().__init__(message)
        self.at, self.offset = at, offset


class Indefinite(Retriable):
    """It is unknown whether a batch was appended.

    The target does not have the sequence of the batch, because of another producer or a loss, or
    its response cannot be read. With this producer's identity nothing more can be appended.
    """

    def __init__(self, at: TopicPartition, offset: int, code: str, message: str) -> None:
        """Create the error.

        Args:
            at: Partition of the source.
            offset: First source offset that is not acknowledged.
            code: Name of the error in the protocol, or ``UNREADABLE_ANSWER`` if there is none.
            message: Sentence about the error.
        """
        super().__init__(message)
        self.at, self.offset, self.code = at, offset, code


class Span:
    """A run of batches that are sent one by one, without a Python object for each.

    Source and target offsets of its records differ by a constant, if no other client writes to the
    target. Not thread-safe: the window, the queue and the appender of a partition share it.
    """

    __slots__ = (
        "_release",
        "acknowledged",
        "data",
        "first_offset",
        "headers",
        "held",
        "leader_epoch",
        "next_offset",
        "payload_bytes",
        "records",
        "row_count",
        "rows",
        "size",
    )

    def __init__(
        self, data: memoryview, scanned: Scanned, run: int, release: Callable[[], None]
    ) -> None:
        """Describe a run of ``scanned``, by its number, whose bytes are in ``data``.

        ``release`` is called once, when the memory of ``data`` is not needed any more.
        """
        at = run * RUN_COLUMNS
        runs = scanned.runs
        first, count = runs[at + RUN_FIRST], runs[at + RUN_ROWS]
        rows = scanned.rows[first * COLUMNS : (first + count) * COLUMNS]
        self.data, self.rows, self.row_count, self._release = data, rows, count, release
        self.first_offset = rows[BASE]
        """Source offset of the first record that is not acknowledged."""
        self.next_offset = rows[LAST - COLUMNS] + 1
        """Source offset after the last record."""
        self.leader_epoch = rows[LEADER_EPOCH]
        self.records = runs[at + RUN_RECORDS]
        self.size = runs[at + RUN_BYTES]
        """Bytes of the batches, headers included."""
        self.payload_bytes = self.size - count * HEADER_BYTES
        self.acknowledged = 0
        """Number of the first row that is not acknowledged."""
        self.held = count
        """Rows whose memory is still used."""
        self.headers = bytearray()
        """Headers of all batches for the target, once they are stamped."""

    def stamp(self, producer: ProducerIdentity, sequence: int) -> None:
        """Write the headers for the target, with sequences from ``sequence`` on."""
        self.headers = stamp(self.data, self.rows, producer, sequence)

    @property
    def timestamp_ms(self) -> int:
        """Newest timestamp of the first unacknowledged batch.

        If all batches are acknowledged, it is the last batch's timestamp.
        """
        return self.rows[min(self.acknowledged, self.row_count - 1) * COLUMNS + MAX_TIMESTAMP]

    def split_until(self, offset: int) -> None:
        """Record that parts of a batch, which was too large, are acknowledged up to an offset."""
        self.first_offset = offset
        self.acknowledged += self.rows[self.acknowledged * COLUMNS + LAST] < offset

    def outgoing(self, row: int) -> Outgoing:
        """Return one of the batches by itself. Its ``release`` releases the row."""
        batch = batch_at(self.data, self.rows, row)
        return Outgoing(batch, batch.last_offset + 1, self.release_row)

    def release_row(self) -> None:
        """Release one row, which is acknowledged or dropped."""
        self.release(1)

    def release(self, rows: int) -> None:
        """Release so many rows, and the memory with the last one."""
        self.held -= rows
        if not self.held:
            self.data = memoryview(b"")
            self._release()
