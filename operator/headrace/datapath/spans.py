"""Spans of fetched batches, and single batches for the target.

The reader of the source creates ``Outgoing`` objects and spans. The appender reports the outcome of
each batch once. Both run in the thread of one event loop.
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
    """Batch to append to a target partition.

    The target stores its records unchanged. The appender replaces those fields of the header that
    depend on the log or the producer: offset, leader epoch, producer, sequence and the
    transactional bit.
    """

    batch: Batch
    """Batch as it was fetched, or rebuilt. It has at least one record, and as many offsets as
    records."""
    next_offset: int
    """Source offset at which reading continues once the batch is acknowledged."""
    release: Callable[[], None]
    """Called once, when the memory of ``batch`` is no longer used: after ``Acknowledged`` or
    ``Failed``, or when the batch is dropped."""
    offsets: Sequence[int] | None = None
    """Source offset of each record of a rebuilt batch. None means consecutive offsets from
    ``batch.base_offset`` on."""
    level: int | None = None
    """Compression level of a rebuilt batch; None for the codec's default."""

    @property
    def first_offset(self) -> int:
        """Source offset of the first record."""
        return self.offsets[0] if self.offsets else self.batch.base_offset

    @property
    def records(self) -> int:
        """Number of records; at least 1."""
        return self.batch.record_count

    @property
    def payload_bytes(self) -> int:
        """Size in bytes of the records as they are sent: compressed, without the batch's header."""
        return self.batch.payload_bytes

    @property
    def leader_epoch(self) -> int:
        """Epoch of the source's leader that appended the batch; -1 if unknown."""
        return self.batch.leader_epoch

    @property
    def max_timestamp_ms(self) -> int:
        """Newest timestamp of the records in ms; -1 if there is none."""
        return self.batch.max_timestamp

    def source_offset(self, index: int) -> int:
        """Return the source offset of the record with this index."""
        return self.batch.base_offset + index if self.offsets is None else self.offsets[index]


class Sending(Protocol):
    """Appender as a pipeline uses it. Call it in the thread of its loop."""

    @property
    def pending(self) -> int:
        """Number of batches and holes that are not acknowledged."""
        ...

    def flush(self) -> None:
        """Send queued batches without waiting."""
        ...

    def drop_unsent(self) -> None:
        """Drop unsent batches.

        ``pending`` becomes 0 once the outcome of the sent batches is known.
        """
        ...

    def close(self) -> None:
        """Drop all batches. The outcome of batches in flight remains unknown."""
        ...


class Acknowledged(Protocol):
    """Receiver of acknowledged batches.

    It is called in the order in which the batches of a partition were appended.
    """

    def __call__(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        """Receive a batch that all in-sync replicas of the target have appended.

        Its records have consecutive target offsets from ``base_offset`` on.
        """
        ...


class Failed(Protocol):
    """Receiver of failures: at most one for a partition, after its last ``Acknowledged``."""

    def __call__(self, at: TopicPartition, error: HeadraceError) -> None:
        """Receive the failure of a partition. Its unacknowledged batches are dropped.

        The error is ``BatchRefused``, ``BatchCorrupt`` or ``Indefinite``, or the target's reason to
        reject the partition, such as a missing permission. Temporary errors, such as a partition
        without a leader, are not reported: batches are sent again until they are acknowledged.
        """
        ...


class Damaged(Protocol):
    """Receiver of responses of the target that were damaged."""

    def __call__(self, at: TopicPartition, why: str) -> None:
        """Receive a partition of the target, and the contradiction between two responses."""
        ...


class BatchRefused(Fatal):
    """The target rejects one or more records of a batch. Nothing of the batch is appended."""

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
    """The checksum of a fetched batch is wrong.

    Nothing is appended. The batch must be fetched again.
    """

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """Create the error; ``offset`` is the batch's first source offset."""
        super().__init__(message)
        self.at, self.offset = at, offset


class Indefinite(Retriable):
    """It is unknown whether a batch was appended.

    The target does not accept the batch's sequence, because of another producer or a loss, or its
    response cannot be read. Nothing more can be appended with this producer identity.
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
    """Consecutive batches that are sent one by one, without a Python object for each.

    A row describes one batch. The source and target offsets of the records differ by a constant, if
    no other client writes to the target. Not thread-safe: the ledger, the queue and the appender of
    a partition share the object.
    """

    __slots__ = (
        "_release",
        "acknowledged",
        "data",
        "epoch_before",
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
        """Create a span from a run of ``scanned``.

        Args:
            data: Bytes that were scanned.
            scanned: Result of the scan.
            run: Index of the run.
            release: Called once, when the memory of ``data`` is no longer needed.
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
        self.epoch_before = -1
        """Leader epoch of the offset before ``first_offset``; -1 if unknown."""
        self.records = runs[at + RUN_RECORDS]
        self.size = runs[at + RUN_BYTES]
        """Size of the batches in bytes, headers included."""
        self.payload_bytes = self.size - count * HEADER_BYTES
        self.acknowledged = 0
        """Index of the first row that is not acknowledged."""
        self.held = count
        """Number of rows whose memory is still used."""
        self.headers = bytearray()
        """Headers of all batches for the target; empty before ``stamp``."""

    def stamp(self, producer: ProducerIdentity, sequence: int) -> None:
        """Write the headers for the target, with sequences from ``sequence`` on."""
        self.headers = stamp(self.data, self.rows, producer, sequence)

    @property
    def timestamp_ms(self) -> int:
        """Newest timestamp, in ms, of the first unacknowledged batch.

        If all batches are acknowledged, it is the last batch's timestamp.
        """
        return self.rows[min(self.acknowledged, self.row_count - 1) * COLUMNS + MAX_TIMESTAMP]

    def split_until(self, offset: int) -> None:
        """Record that a batch, which was split, is acknowledged up to a source offset."""
        self.first_offset, self.epoch_before = offset, self.leader_epoch
        self.acknowledged += self.rows[self.acknowledged * COLUMNS + LAST] < offset

    def outgoing(self, row: int) -> Outgoing:
        """Return one batch as an object of its own. Its ``release`` releases the row."""
        batch = batch_at(self.data, self.rows, row)
        return Outgoing(batch, batch.last_offset + 1, self.release_row)

    def release_row(self) -> None:
        """Release one row, which is acknowledged or dropped."""
        self.release(1)

    def release(self, rows: int) -> None:
        """Release this number of rows. When the last row is released, the memory is released."""
        self.held -= rows
        if not self.held:
            self.data = memoryview(b"")
            self._release()
