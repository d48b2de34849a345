"""Interface between a source task and the mover of its records.

The task passes offsets to a lane, and receives acknowledged offsets and the problems of partitions.
It uses nothing else of the mover.
"""

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace.api import TopicPartition
from headrace.assign import TaskId
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.replication import OwnerProducer, TargetSeen
from headrace.replication.progress import ContiguousRange
from headrace.replication.reconcile import Resume


@dataclass
class CopiedCounts:
    """Counters of a task's copied records and batches. They never decrease.

    Only one thread may count. Any thread may read.
    """

    records: int = 0
    bytes: int = 0
    """Size of the records as they were sent: compressed, without the headers of batches."""
    filtered: int = 0
    """Number of records that ``spec.recordFilter`` excluded. Records that are read again are
    counted again."""
    skipped: int = 0
    """Number of records that the target rejected and that were skipped."""
    dead_lettered: int = 0
    """Number of records that the target rejected and that were copied to the dead-letter topic."""
    batches_copied: int = 0
    """Number of batches that were sent unchanged."""
    bytes_copied: int = 0
    """Size of the batches in ``batches_copied``, with headers, as fetched."""
    batches_rebuilt: int = 0
    """Number of batches whose records were put into new batches."""
    bytes_rebuilt: int = 0
    """Size of the batches in ``batches_rebuilt``, with headers, as fetched."""
    rebuilt: dict[str, int] = field(default_factory=dict)
    """Number of rebuilt batches by reason, a value of ``chunk.Why``."""
    rebuilt_bytes: dict[str, int] = field(default_factory=dict)
    """Size of rebuilt batches in bytes, as fetched, by reason."""
    damaged: int = 0
    """Number of damaged responses of brokers. The requests are repeated."""
    filled: int = 0
    """Number of offsets without a record that were filled, for copies with preserved offsets."""
    verified: dict[str, int] = field(default_factory=dict)
    """Number of batches that were compared with the target, by result: a value of
    ``verify.BatchComparison``."""

    def rebuild(self, batches: int, size: int, why: str) -> None:
        """Count rebuilt batches with their total size in bytes."""
        self.batches_rebuilt += batches
        self.bytes_rebuilt += size
        self.rebuilt[why] = self.rebuilt.get(why, 0) + batches
        self.rebuilt_bytes[why] = self.rebuilt_bytes.get(why, 0) + size


class CopyFrom(NamedTuple):
    """Offset from which a partition is copied."""

    offset: int
    """Source offset."""
    leader_epoch: int
    """Leader epoch of the record before ``offset``; -1 if unknown."""
    target_offset: int = 0
    """Target offset after the last acknowledged record. If a new record gets a lower offset, the
    target has lost records."""
    suspects: range = range(0)
    """Source offsets of records that are sent one at a time or in small groups, because the target
    rejects at least one of them."""
    writer: OwnerProducer | None = None
    """Producer identity of the batches, with sequences from 0 on. It must never have written to the
    partition with this epoch. None means the lane's own identity, which another owner cannot fence.
    """


class Reached(NamedTuple):
    """State of one partition's copy."""

    acknowledged: int
    """Source offset below which all records are on the target, or are not to be copied."""
    target_offset: int | None
    """Target offset after the last acknowledged record, or None if there is none."""
    leader_epoch: int
    """Leader epoch of the last record read; -1 if unknown."""
    in_flight: int
    """Number of records sent and not yet acknowledged, or not committed."""
    end: int | None
    """High watermark of the source at the last fetch, or None before the first fetch."""
    oldest_timestamp_ms: int | None
    """Timestamp of the oldest unacknowledged record. If there is none, the timestamp of the last
    acknowledged record."""
    unexpected_offsets: int
    """Number of acknowledged batches with an unexpected target offset, which another writer
    causes."""
    target_seen: TargetSeen | None = None
    """Acknowledged target end as in ``Progress``. It is at most ``target_offset``, and None while
    unknown."""
    silent_s: float = 0.0
    """Time in seconds for which the source owes an answer about the partition; 0 if it answers."""
    held_up_s: float = 0.0
    """Time in seconds for which the target has acknowledged none of the records in flight."""

    @property
    def lag_records(self) -> int:
        """Number of source records without acknowledgement on the target, as of the last fetch."""
        return max(0, self.end - self.acknowledged) if self.end is not None else 0

    def lag_s(self, now_s: float) -> float:
        """Return the age in seconds of the oldest unacknowledged record; 0 if there is none.

        ``now_s`` is Unix time.
        """
        if self.oldest_timestamp_ms is None or not self.lag_records:
            return 0.0
        return max(0.0, now_s - self.oldest_timestamp_ms / 1000)


class OffsetGone(Fatal):
    """The source no longer has the next offset to copy."""

    def __init__(
        self, at: TopicPartition, offset: int, message: str, *, diverged_at: int | None = None
    ) -> None:
        """Create the error.

        ``diverged_at`` is the source offset at which the log was truncated; the record at
        ``offset`` may be a different one now.
        """
        super().__init__(message)
        self.at = at
        self.offset = offset
        self.diverged_at = diverged_at


class TargetLoss(Fatal):
    """The target assigned an offset to a second record, so the first record was lost."""

    def __init__(self, at: TopicPartition, offset: int, expected: int) -> None:
        """Create the error; ``expected`` is the lowest offset without a loss."""
        super().__init__(f"{at} was written at offset {offset}, {expected} was next")
        self.at, self.offset, self.expected = at, offset, expected


class SourceRecord(NamedTuple):
    """Record as it is on the source."""

    offset: int
    timestamp_ms: int
    """Timestamp in ms; -1 if there is none."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class RecordRefused(Fatal):
    """The target rejects one or more records of a batch. Nothing of the batch is appended."""

    def __init__(
        self,
        at: TopicPartition,
        offsets: range,
        code: str,
        message: str,
        record: SourceRecord | None,
    ) -> None:
        """Create the error.

        Args:
            at: Partition of the source.
            offsets: Source offsets from the first to the last rejected record.
            code: Name of the error in the protocol.
            message: Sentence about the error.
            record: The rejected record, if it was sent alone.
        """
        super().__init__(message)
        self.at, self.offsets, self.code, self.record = at, offsets, code, record


class Problem(NamedTuple):
    """Reason why a partition is no longer copied. Its acknowledged offset stays valid."""

    at: TopicPartition
    error: HeadraceError
    """``OffsetGone``: the source deleted the offset. ``TargetLoss``: the target lost records.
    ``RecordRefused``: the target rejected records. ``Retriable``: a new lane may succeed. Other
    errors are ``Fatal``."""


class Transactional(Protocol):
    """Additional methods of a lane that copies in transactions. No call waits.

    In such a lane, ``Reached`` and ``take_runs`` describe committed records, and ``in_flight``
    counts uncommitted ones.
    """

    @property
    def uncommitted(self) -> bool:
        """Whether there is something to commit."""
        ...

    def cut(self) -> Mapping[TopicPartition, Reached] | None:
        """Stop sending, and return the state that a commit would store, by partition.

        Return None while sent records are not acknowledged: call it again until it returns the
        state. Nothing is sent until ``commit`` or ``go_on``. Raise the errors of ``run_once``.
        """
        ...

    def cut_runs(self) -> Mapping[TopicPartition, Sequence[ContiguousRange]]:
        """Return the ranges that a commit would store.

        After the commit, ``take_runs`` returns these ranges.
        """
        ...

    def commit(
        self,
        progress: Mapping[TopicPartition, Sequence[tuple[bytes, bytes]]],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        """Commit the data, with keys and values of progress by partition of the progress topic.

        The lane then continues. Another thread calls ``committed`` with None, or with the reason
        why the outcome is unknown. In that case another lane must continue, after it has fenced
        this one. Raise the error if the transaction was lost since ``cut``.
        """
        ...

    def go_on(self) -> None:
        """Continue without a commit, because there is nothing to store.

        Raise the error if the transaction was lost since ``cut``.
        """
        ...


class Lane(Protocol):
    """Copy of one task's partitions.

    Not thread-safe. Only ``settle`` and ``close`` wait. Calls raise ``Retriable`` or ``Fatal`` for
    errors that concern more than one partition.
    """

    @property
    def closed(self) -> threading.Event:
        """Event that is set when ``close`` has ended. Any thread may wait for it."""
        ...

    @property
    def partitions(self) -> Set[TopicPartition]:
        """Partitions that are open or leaving."""
        ...

    @property
    def in_flight(self) -> int:
        """Number of records sent and not yet acknowledged."""
        ...

    @property
    def polled(self) -> bool:
        """Whether ``run_once`` itself moves records.

        If so, call it again at once after a call that moved some. Otherwise a thread of the mover
        moves them.
        """
        ...

    @property
    def transactions(self) -> Transactional | None:
        """Methods for transactions; None if the lane copies without transactions."""
        ...

    @property
    def outdated(self) -> bool:
        """Whether the lane should be replaced, for example because credentials have changed."""
        ...

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        """Open these partitions in addition to the open ones."""
        ...

    def leave(self, partitions: Set[TopicPartition]) -> None:
        """Send no more records of these partitions. Acknowledgements still count."""
        ...

    def keep(self, partitions: Set[TopicPartition]) -> None:
        """Cancel ``leave`` of these partitions, and continue after the last sent record."""
        ...

    def pause(self, partitions: Set[TopicPartition]) -> None:
        """Pause exactly these of the open partitions, and resume all others.

        Acknowledgements of paused partitions still count. Partitions that are leaving do not
        change.
        """
        ...

    def forget(self, partitions: Set[TopicPartition]) -> None:
        """Close these partitions, which were left and have nothing in flight."""
        ...

    def rest(self) -> None:
        """Read nothing more from the source until the next ``run_once``."""
        ...

    def run_once(self) -> int:
        """Copy available records without waiting, and return the number of records sent."""
        ...

    def poll(self) -> None:
        """Process acknowledgements, and send nothing."""
        ...

    def state(self) -> Mapping[TopicPartition, Reached]:
        """Return the state of each open partition."""
        ...

    def take_runs(self) -> Mapping[TopicPartition, Sequence[ContiguousRange]]:
        """Return the ranges that were acknowledged since the last call, in order.

        Partitions without new ranges are left out.
        """
        ...

    def problems(self) -> list[Problem]:
        """Return the problems of partitions that are no longer copied, oldest first."""
        ...

    def drop_unsent(self) -> None:
        """Drop unsent records without waiting. Only ``settle`` and ``close`` may follow."""
        ...

    def settle(self, timeout_s: float) -> None:
        """Drop unsent records, and wait for the outcome of sent ones. Only ``close`` may follow.

        Afterwards nothing is in flight, and ``state`` and ``problems`` are final.

        Raises:
            Retriable: The target does not answer within ``timeout_s``.
        """
        ...

    def close(self) -> None:
        """Drop all queued records and close the clients."""
        ...


class Before(NamedTuple):
    """Known state of a partition that earlier owners have written, before a takeover."""

    target: TopicPartition
    source_offset: int
    """Stored source offset: the next one to copy."""
    target_offset: int
    """Stored target offset. Records from this offset on are unknown."""
    writers: frozenset[OwnerProducer]
    """Earlier writers that must be fenced."""
    unfenced: frozenset[int] = frozenset()
    """Producer ids of writers that cannot be fenced; -1 stands for writers without a known id."""
    compare: bool = True
    """Whether to compare records after the stored offset with the source. Otherwise the copy
    resumes at the stored offset."""
    data_writer: OwnerProducer | None = None
    """Data writer of a copy with preserved offsets, as in ``Progress``. The copy resumes at the end
    of the target's log."""
    source_compacts: bool = False
    """Whether the source's log may have lost records to compaction since they were copied. It is
    used only if ``data_writer`` is set."""
    target_compacts: bool = False
    progress: TopicPartition | None = None
    """Partition of the progress topic, if writers may have stored progress in their transactions.
    The writers are fenced there also, and all their records below ``target_offset`` were committed.
    """

    @property
    def closed(self) -> frozenset[TopicPartition]:
        """Target partitions in which the earlier writers are fenced."""
        return frozenset({self.target} | ({self.progress} if self.progress else set()))


class Resumed(NamedTuple):
    """Offset at which a partition resumes."""

    resume: Resume
    leader_epoch: int
    """Leader epoch of the last source record that is not copied again; -1 if there is none."""


class Closed(NamedTuple):
    """Partition in which earlier writers are fenced."""

    records: int
    """Number of records that fenced writers had appended after the stored offset."""
    unfenced: frozenset[int]
    """Producer ids of writers that could not be fenced."""


class Filling(Retriable):
    """A target partition is not yet filled up to the source's first offset. The caller retries."""

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """Create the error; ``offset`` is the offset up to which the partition is filled."""
        super().__init__(message)
        self.at, self.offset = at, offset


class Fencing(Protocol):
    """Fences earlier writers of target partitions. Thread-safe; its methods wait."""

    @property
    def impossible(self) -> str:
        """Reason why the target cannot fence writers, or empty.

        If the target cannot fence writers, ``identify`` fails.
        """
        ...

    def data_writer(self, task: str) -> OwnerProducer | None:
        """Return the producer identity for this task's copies that have no data yet.

        Later owners use the same identity. None means that each owner appends with its own
        identity. Raise the errors of ``identify``.
        """
        ...

    def identify(self, transactional_id: str) -> OwnerProducer:
        """Return an identity with a new epoch. Its batches are accepted until the epoch is raised.

        Raises:
            Retriable: The target does not respond.
            Fatal: The target does not permit it.
        """
        ...

    def end_transactions(self, transactional_ids: Set[str]) -> None:
        """Abort the open transactions of other owners. Their committed records are then final.

        A missing permission is reported by ``resume``.

        Raises:
            Retriable: The target does not respond.
        """
        ...

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | Retriable]:
        """Return the end offset of a leader epoch in the logs of target partitions.

        ``epochs`` contains the epoch of each partition. Partitions whose leader has no end for the
        epoch are left out.
        """
        ...

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Resumed | HeadraceError]:
        """Fence all other writers, and return where ``own`` resumes each partition.

        The keys are partitions of the source. An error is returned for a partition that must be
        retried, for example because it has no leader. With a ``data_writer``, ``Fatal`` means that
        the copy's offsets cannot be the source's.

        Raises:
            Retriable: An error concerns all partitions.
        """
        ...

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Closed | Retriable]:
        """Fence the partitions as ``resume`` does, without comparison and without the source."""
        ...


class Mover(Protocol):
    """Mover of one flow on one driver. Thread-safe."""

    @property
    def fencing(self) -> Fencing | None:
        """Fencing of earlier owners; None if the mover's writers cannot be fenced."""
        ...

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts) -> Lane:
        """Create a lane without partitions.

        Args:
            task: The source task.
            on_error: Receives messages about unreachable brokers.
            copied: Counts acknowledged records.

        Raises:
            HeadraceError: A client could not be created.
        """
        ...
