"""The interface between a source task and the mover of its records.

The task passes offsets in and receives acknowledged offsets, and problems of partitions. It uses
nothing else of its mover.
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
    """Counts of what the target has acknowledged; they only grow.

    One thread counts, any may read.
    """

    records: int = 0
    bytes: int = 0
    """Bytes of records as they were sent: compressed, without the headers of their batches."""
    filtered: int = 0
    """Records that ``spec.recordFilter`` keeps from being copied, as they were read. Counted again
    when they are read again."""
    skipped: int = 0
    """Records that the target refused, and that are not copied."""
    dead_lettered: int = 0
    """Records that the target refused, and that are on the dead-letter topic."""
    batches_copied: int = 0
    """Batches that were sent unchanged."""
    bytes_copied: int = 0
    """Size of these batches with their headers, as fetched."""
    batches_rebuilt: int = 0
    """Batches that were taken apart and sent as new ones."""
    bytes_rebuilt: int = 0
    """Size of these batches with their headers, as fetched."""
    rebuilt: dict[str, int] = field(default_factory=dict)
    """How many of those, by reason: a value of ``chunk.Why``."""
    rebuilt_bytes: dict[str, int] = field(default_factory=dict)
    """How many bytes these had, as fetched."""
    damaged: int = 0
    """Answers of the source's brokers that were damaged, and fetched again."""
    filled: int = 0
    """Offsets without a record that were filled, where copies have their sources' offsets."""
    verified: dict[str, int] = field(default_factory=dict)
    """How many of those that were sent as they are were read back, by what was found: a value of
    ``verify.BatchComparison``."""

    def rebuild(self, batches: int, size: int, why: str) -> None:
        """Count rebuilt batches with their total size."""
        self.batches_rebuilt += batches
        self.bytes_rebuilt += size
        self.rebuilt[why] = self.rebuilt.get(why, 0) + batches
        self.rebuilt_bytes[why] = self.rebuilt_bytes.get(why, 0) + size


class CopyFrom(NamedTuple):
    """Where to copy from."""

    offset: int
    """Source offset."""
    leader_epoch: int
    """Leader epoch of the record before it; -1 if unknown."""
    target_offset: int = 0
    """End of what the target acknowledged before. A record below it means that the target lost
    some.
    """
    suspects: range = range(0)
    """Source offsets of records that are sent one at a time, or by few, as the target refuses some
    of them."""
    writer: OwnerProducer | None = None
    """Identity that its batches carry, from sequence 0 on. It must never have written there with
    this epoch. None: the lane's identity, which no other owner can fence.
    """


class Reached(NamedTuple):
    """How far one partition is copied."""

    acknowledged: int
    """All source offsets below this one are on the target (or hold nothing to copy)."""
    target_offset: int | None
    """Target offset after the last acknowledged record, or None if there is none."""
    leader_epoch: int
    """Leader epoch of the last record read; -1 if unknown."""
    in_flight: int
    """Records sent and not yet acknowledged, or not committed."""
    end: int | None
    """End of the source's log at the last fetch, or None before the first fetch."""
    oldest_timestamp_ms: int | None
    """Timestamp of the oldest unacknowledged record, or of the last acknowledged one if there is
    none.
    """
    unexpected_offsets: int
    """How often an acknowledged target offset was not the expected one: a foreign writer."""
    target_seen: TargetSeen | None = None
    """Acknowledged end as in ``Progress``. It is at most ``target_offset``, and None while unknown.
    """
    silent_s: float = 0.0
    """Time since the source answered about the partition, as far as that is due."""

    @property
    def lag_records(self) -> int:
        """Records on the source that are not acknowledged on the target, as last fetched."""
        return max(0, self.end - self.acknowledged) if self.end is not None else 0

    def lag_s(self, now_s: float) -> float:
        """Age of the oldest record not yet acknowledged, in seconds; 0 when there is none.

        ``now_s`` is Unix time.
        """
        if self.oldest_timestamp_ms is None or not self.lag_records:
            return 0.0
        return max(0.0, now_s - self.oldest_timestamp_ms / 1000)


class OffsetGone(Fatal):
    """The source no longer holds the offset that was to be copied next."""

    def __init__(
        self, at: TopicPartition, offset: int, message: str, *, diverged_at: int | None = None
    ) -> None:
        """``diverged_at``: the log was truncated there, whatever it holds at ``offset`` now."""
        super().__init__(message)
        self.at = at
        self.offset = offset
        self.diverged_at = diverged_at


class TargetLoss(Fatal):
    """The target gave a record an offset that it had given to an earlier one."""

    def __init__(self, at: TopicPartition, offset: int, expected: int) -> None:
        """Create the error; ``expected`` is the lowest offset without a loss."""
        super().__init__(f"{at} was written at offset {offset}, {expected} was next")
        self.at, self.offset, self.expected = at, offset, expected


class SourceRecord(NamedTuple):
    """A record as the source has it."""

    offset: int
    timestamp_ms: int
    """-1: none."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class RecordRefused(Fatal):
    """The target takes no record with this content, or one of a batch: none of it is appended."""

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
    """Why a partition is not copied any further; its acknowledged position stays."""

    at: TopicPartition
    error: HeadraceError
    """``OffsetGone``: the source deleted the offset. ``TargetLoss``: the target lost records.
    ``RecordRefused``: the target rejected records. ``Retriable``: a new lane may succeed. Other
    errors are ``Fatal``.
    """


class Transactional(Protocol):
    """Additional methods of a lane that copies in transactions. No call waits.

    ``Reached`` and ``take_runs`` then describe what is committed, and ``in_flight`` what is not.
    """

    @property
    def uncommitted(self) -> bool:
        """Whether there is something to commit."""
        ...

    def cut(self) -> Mapping[TopicPartition, Reached] | None:
        """Return how far a commit now would reach, or None until that is acknowledged: call again.

        Nothing more is sent until it is committed, or until ``go_on``. Raise as ``run_once``.
        """
        ...

    def cut_runs(self) -> Mapping[TopicPartition, Sequence[ContiguousRange]]:
        """Return the ranges that were cut; ``take_runs`` returns them once they are committed."""
        ...

    def commit(
        self,
        progress: Mapping[TopicPartition, Sequence[tuple[bytes, bytes]]],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        """Commit what was cut, with these keys and values by partition of their topic.

        The lane then continues. ``committed`` is called by another thread: with None, or with the
        reason why the outcome is unknown. Another lane must then continue after a fence.
        """
        ...

    def go_on(self) -> None:
        """Without a commit of what was cut: there is nothing to store."""
        ...


class Lane(Protocol):
    """One task's share of a mover. Not thread-safe; only ``settle`` and ``close`` wait.

    Calls raise ``Retriable`` or ``Fatal`` for what concerns more than one partition.
    """

    @property
    def closed(self) -> threading.Event:
        """Set when ``close`` has ended; for any thread."""
        ...

    @property
    def partitions(self) -> Set[TopicPartition]:
        """Partitions that are open or leaving."""
        ...

    @property
    def in_flight(self) -> int:
        """Records sent and not yet acknowledged."""
        ...

    @property
    def polled(self) -> bool:
        """Whether records move in ``run_once``.

        Each call after one that moved some is then due at once. Otherwise a thread of the mover
        moves them.
        """
        ...

    @property
    def transactions(self) -> Transactional | None:
        """None: what is acknowledged is copied."""
        ...

    @property
    def outdated(self) -> bool:
        """Whether passwords or certificates have changed since its clients were made."""
        ...

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        """Open these partitions in addition to the others."""
        ...

    def leave(self, partitions: Set[TopicPartition]) -> None:
        """Send nothing more of these; acknowledgements still count."""
        ...

    def keep(self, partitions: Set[TopicPartition]) -> None:
        """Keep those of these partitions that were to leave, from the last sent record on."""
        ...

    def pause(self, partitions: Set[TopicPartition]) -> None:
        """Pause exactly these of the open partitions; acknowledgements still count.

        Other calls decide whether the remaining partitions are read; this call does not change
        that.
        """
        ...

    def forget(self, partitions: Set[TopicPartition]) -> None:
        """Close these, which were left and have nothing in flight."""
        ...

    def rest(self) -> None:
        """Take nothing more of the source until the next ``run_once``."""
        ...

    def run_once(self) -> int:
        """Copy what is there, without waiting; the number of records sent."""
        ...

    def poll(self) -> None:
        """Take acknowledgements in, and send nothing."""
        ...

    def state(self) -> Mapping[TopicPartition, Reached]:
        """How far each open partition is."""
        ...

    def take_runs(self) -> Mapping[TopicPartition, Sequence[ContiguousRange]]:
        """Return the ranges that the target has acknowledged since the last call, in order.

        Partitions without such ranges are left out.
        """
        ...

    def problems(self) -> list[Problem]:
        """Return the problems of partitions that are no longer copied, oldest first."""
        ...

    def drop_unsent(self) -> None:
        """Drop what is not sent, without waiting: only ``settle`` and ``close`` may follow."""
        ...

    def settle(self, timeout_s: float) -> None:
        """Drop what is not sent and wait for the outcome of what is: the last before ``close``.

        Afterwards nothing is in flight, ``state`` and ``problems`` are final. ``Retriable`` when
        the target does not answer within ``timeout_s``.
        """
        ...

    def close(self) -> None:
        """Drop what is queued and free the clients."""
        ...


class Before(NamedTuple):
    """Known state of a partition that others have written, before it is closed to them."""

    target: TopicPartition
    source_offset: int
    """The next one to copy, as stored."""
    target_offset: int
    """Stored target offset. Records at or after it are unknown."""
    writers: frozenset[OwnerProducer]
    """Writers to which the partition is to be closed."""
    unfenced: frozenset[int] = frozenset()
    """Producer ids of other writers, which cannot be fenced; -1 for some without a known id."""
    compare: bool = True
    """Whether to read what is written already; otherwise the copy resumes where it is stored."""
    data_writer: OwnerProducer | None = None
    """Data writer of a copy with its source's offsets, as in ``Progress``. The copy's end is where
    it resumes.
    """
    source_compacts: bool = False
    """Whether its log may have lost records since they were copied; as the next one, it counts only
    with a ``data_writer``."""
    target_compacts: bool = False
    progress: TopicPartition | None = None
    """Partition of its progress, if writers may have stored it in their transactions. It is also
    closed to them, and all their records below ``target_offset`` were committed.
    """

    @property
    def closed(self) -> frozenset[TopicPartition]:
        """Partitions to close to its writers."""
        return frozenset({self.target} | ({self.progress} if self.progress else set()))


class Resumed(NamedTuple):
    """Where a partition resumes."""

    resume: Resume
    leader_epoch: int
    """Leader epoch of the last source record that is not copied again; -1 if there is none."""


class Closed(NamedTuple):
    """A partition that is closed to earlier writers."""

    records: int
    """Number of records that fenced writers had appended after the stored offset."""
    unfenced: frozenset[int]
    """Producer ids of those that could not be fenced."""


class Filling(Retriable):
    """A partition of the target is still being filled up to the source's first offset: continue."""

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """``offset``: so far it is filled."""
        super().__init__(message)
        self.at, self.offset = at, offset


class Fencing(Protocol):
    """Closes partitions of the target to earlier writers. Thread-safe; its methods wait."""

    @property
    def impossible(self) -> str:
        """Why the target can fence no writer. Empty if it can; otherwise ``identify`` fails."""
        ...

    def data_writer(self, task: str) -> OwnerProducer | None:
        """Return the writer of data for this task's copies that have no data yet.

        Later owners use it as well. None means that each owner appends as itself. Raise as
        ``identify``.
        """
        ...

    def identify(self, transactional_id: str) -> OwnerProducer:
        """Return an identity with a new epoch, whose batches are valid until a later epoch.

        Raise ``Retriable``, and ``Fatal`` if the target does not permit it.
        """
        ...

    def end_transactions(self, transactional_ids: Set[str]) -> None:
        """Abort the open transactions of other owners; their committed records are then final.

        Raise ``Retriable``; a missing permission is left to ``resume``.
        """
        ...

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | Retriable]:
        """Return where the logs of these target partitions end those leader epochs.

        Partitions whose leader has no end for the epoch are left out.
        """
        ...

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Resumed | HeadraceError]:
        """Return where ``own`` resumes each partition, once no other writer can append.

        An error is returned for a partition that must be retried, for example because it has no
        leader. With a ``data_writer``, ``Fatal`` means that its offsets cannot be the source's.
        Partitions are the source's. Raise ``Retriable`` for errors that concern all of them.
        """
        ...

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Closed | Retriable]:
        """Close the partitions as ``resume`` does, without comparison and without the source."""
        ...


class Mover(Protocol):
    """Mover of one flow on one driver. Thread-safe."""

    @property
    def fencing(self) -> Fencing | None:
        """None: its writers cannot be fenced."""
        ...

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts) -> Lane:
        """Create a lane without partitions.

        ``on_error`` receives sentences about unreachable brokers. Acknowledged records are added to
        ``copied``. Raise the errors of creating clients.
        """
        ...
