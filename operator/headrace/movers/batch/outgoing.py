"""What passes between the two halves of the batch mover: who reads the source makes ``Outgoing``,
who appends to the target answers each of them once.

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
    """As it was fetched, or rebuilt. It has at least one record, and as many offsets as records."""
    next_offset: int
    """Of the source: where to read on once this is acknowledged."""
    release: Callable[[], None]
    """Called once, after ``Acknowledged`` or ``Failed``, or when it is dropped: the memory of
    ``batch`` may be used again."""
    offsets: Sequence[int] | None = None
    """Of a rebuilt batch: the source's offset of each record. ``None``: ``batch.base_offset`` and
    those that follow it without a gap."""
    level: int | None = None
    """Compression level of a rebuilt batch. None: the codec's default."""

    @property
    def first_offset(self) -> int:
        """Of the source: its first record."""
        return self.offsets[0] if self.offsets else self.batch.base_offset

    @property
    def records(self) -> int:
        """How many it has; more than 0."""
        return self.batch.record_count

    @property
    def payload_bytes(self) -> int:
        """Of its records, as they are sent: compressed, without the header of the batch."""
        return self.batch.payload_bytes

    @property
    def leader_epoch(self) -> int:
        """Of the source's leader that appended it; -1: unknown."""
        return self.batch.leader_epoch

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp of its records; -1: none."""
        return self.batch.max_timestamp

    def source_offset(self, index: int) -> int:
        """Of the source: its record with this index."""
        return self.batch.base_offset + index if self.offsets is None else self.offsets[index]


class Sending(Protocol):
    """Who appends, of all partitions; in the thread of its loop."""

    @property
    def pending(self) -> int:
        """What is not acknowledged."""
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
        """The target, all in-sync replicas, has it. Its records have the target offsets from
        ``base_offset`` on, without a gap."""
        ...


class Failed(Protocol):
    """Called at most once for a partition, after the last ``Acknowledged`` of it."""

    def __call__(self, at: TopicPartition, error: HeadraceError) -> None:
        """Nothing more of it is sent: all that is not acknowledged is dropped.

        ``BatchRefused``, ``BatchCorrupt``, ``Indefinite``; else what the target refuses the
        partition for, a missing right say. What may pass by itself, as a partition without a
        leader, is not reported here: it is sent again until it is acknowledged.
        """
        ...


class BatchRefused(Fatal):
    """The target takes no record with this content, or one of a batch: none of it is appended."""

    def __init__(self, at: TopicPartition, offsets: range, code: str, message: str) -> None:
        """``offsets``: of the source, from the first to the last record that was refused, as far as
        the target names them; ``code``: the error's name in the protocol."""
        super().__init__(message)
        self.at, self.offsets, self.code = at, offsets, code


class BatchCorrupt(Retriable):
    """The checksum of a fetched batch is wrong: fetch it again. None of it is appended."""

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """``offset``: of the source."""
        super().__init__(message)
        self.at, self.offset = at, offset


class Indefinite(Retriable):
    """The target does not know the sequence of a batch: another producer, or a loss, came between;
    or what it answers cannot be read.

    Whether the batch is appended is unknown; with this producer's identity nothing more can be.
    """

    def __init__(self, at: TopicPartition, offset: int, code: str, message: str) -> None:
        """``offset``: of the source, the first that is not acknowledged; ``code``: the error's name
        in the protocol; ``UNREADABLE_ANSWER``: there is none."""
        super().__init__(message)
        self.at, self.offset, self.code = at, offset, code
