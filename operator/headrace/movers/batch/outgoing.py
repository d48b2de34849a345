"""Interface between the two halves of the batch mover.

The reader of the source creates ``Outgoing``. The appender to the target answers each of them once.
Both run in the thread of one ``Loop``; an ``Appender`` calls back from ``flush`` or from the loop.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import Batch


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
