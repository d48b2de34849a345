"""The interface between a source task and whatever moves its records.

Positions in, acknowledged positions out, problems per partition. A task knows nothing else of its
mover.
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
    """What the target has acknowledged; it only grows. One thread counts, any may read."""

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
    """Of those, with their headers, as fetched."""
    batches_rebuilt: int = 0
    """Batches that were taken apart and sent as new ones."""
    bytes_rebuilt: int = 0
    """Of those, with their headers, as fetched."""
    rebuilt: dict[str, int] = field(default_factory=dict)
    """How many of those, by reason: a value of ``movers.batch.Why``."""
    rebuilt_bytes: dict[str, int] = field(default_factory=dict)
    """How many bytes these had, as fetched."""
    filled: int = 0
    """Offsets without a record that were filled, where copies have their sources' offsets."""
    verified: dict[str, int] = field(default_factory=dict)
    """How many of those that were sent as they are were read back, by what was found: a value of
    ``movers.batch.Comparison``."""

    def rebuild(self, batches: int, size: int, why: str) -> None:
        """So many were rebuilt, of this size together."""
        self.batches_rebuilt += batches
        self.bytes_rebuilt += size
        self.rebuilt[why] = self.rebuilt.get(why, 0) + batches
        self.rebuilt_bytes[why] = self.rebuilt_bytes.get(why, 0) + size


class CopyFrom(NamedTuple):
    """Where to copy from."""

    offset: int
    """Of the source."""
    leader_epoch: int
    """Of the last record before it; -1 when unknown."""
    target_offset: int = 0
    """What the target acknowledged before ends there: a record below it means that it lost some."""
    suspects: range = range(0)
    """Source offsets of records that are sent one at a time, or by few, as the target refuses some
    of them."""
    writer: OwnerProducer | None = None
    """Whose identity its batches carry, from sequence 0 on: never one that has written there with
    this epoch. None: that of the lane, which nobody can fence."""


class Reached(NamedTuple):
    """How far one partition is copied."""

    acknowledged: int
    """All source offsets below this one are on the target (or hold nothing to copy)."""
    target_offset: int | None
    """Behind the last record acknowledged on the target; ``None`` before the first."""
    leader_epoch: int
    """Of the last record read; -1 when unknown."""
    in_flight: int
    """Records sent and not yet acknowledged, or not committed."""
    end: int | None
    """Of the source, as last fetched; ``None`` before the first fetch."""
    oldest_timestamp_ms: int | None
    """Of the oldest record not acknowledged, else of the last that was."""
    unexpected_offsets: int
    """How often an acknowledged target offset was not the expected one: a foreign writer."""
    target_seen: TargetSeen | None = None
    """See ``Progress``; at most ``target_offset``, and ``None`` while it is not known."""

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
        """``expected``: the lowest that a target without a loss could have given."""
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
        """``offsets``: of the source, from the first to the last that was refused; ``code``: the
        error's name in the protocol; ``record``: the one that it is, if it was sent by itself."""
        super().__init__(message)
        self.at, self.offsets, self.code, self.record = at, offsets, code, record


class Problem(NamedTuple):
    """Why a partition is not copied any further; its acknowledged position stays."""

    at: TopicPartition
    error: HeadraceError
    """``OffsetGone``: of the source. ``TargetLoss``: of the target. ``RecordRefused``: by the
    target. ``Retriable``: a new lane may do better. Else ``Fatal``."""


class Transactional(Protocol):
    """What a lane that copies in transactions has besides. No call waits.

    Then ``Reached`` and ``take_runs`` tell what is committed, and ``in_flight`` what is not.
    """

    @property
    def uncommitted(self) -> bool:
        """Whether there is something to commit."""
        ...

    def cut(self) -> Mapping[TopicPartition, Reached] | None:
        """How far a commit now would reach; ``None`` as long as that is not acknowledged: ask
        again. Nothing more is sent until it is committed, or ``go_on``. Raises as ``run_once``."""
        ...

    def cut_runs(self) -> Mapping[TopicPartition, Sequence[ContiguousRange]]:
        """Of what is cut; ``take_runs`` returns them once they are committed."""
        ...

    def commit(
        self,
        progress: Mapping[TopicPartition, Sequence[tuple[bytes, bytes]]],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        """What was cut, with these keys and values, by partition of their topic; then it goes on.

        ``committed`` is called, by another thread, with ``None``, or with why it is not known to
        be: then another lane has to go on, behind a fence.
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
        """Those that are open, also while they are left."""
        ...

    @property
    def in_flight(self) -> int:
        """Records sent and not yet acknowledged."""
        ...

    @property
    def polled(self) -> bool:
        """Whether records move in ``run_once``, so that each call after one that moved some is due
        at once; else a thread of the mover's own moves them."""
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
        """Copy these partitions, too."""
        ...

    def leave(self, partitions: Set[TopicPartition]) -> None:
        """Send nothing more of these; acknowledgements still count."""
        ...

    def keep(self, partitions: Set[TopicPartition]) -> None:
        """Go on with those of them that were to be left, from what is sent."""
        ...

    def pause(self, partitions: Set[TopicPartition]) -> None:
        """Read nothing of these and, of the open ones, these only; acknowledgements still count.
        Whether the others are read was decided by other calls, which this one does not undo."""
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
        """What the target has acknowledged since the last call, in order; without partitions of
        which that is nothing."""
        ...

    def problems(self) -> list[Problem]:
        """Of partitions that are not copied any further, first come first."""
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
    """What is known of a partition that others have written, before it is closed to them."""

    target: TopicPartition
    source_offset: int
    """The next one to copy, as stored."""
    target_offset: int
    """As stored: what lies there, or above, is not known."""
    writers: frozenset[OwnerProducer]
    """Whom to close it to."""
    unfenced: frozenset[int] = frozenset()
    """Producer ids of others, whom nobody can close it to; -1: some without a known one."""
    compare: bool = True
    """Whether to read what is written already; otherwise the copy resumes where it is stored."""
    data_writer: OwnerProducer | None = None
    """See ``Progress``: of a copy with its source's offsets, whose end says where it goes on."""
    source_compacts: bool = False
    """Whether its log may have lost records since they were copied; as the next one, it counts only
    with a ``data_writer``."""
    target_compacts: bool = False
    progress: TopicPartition | None = None
    """Where its progress is stored, if writers may have done so in their transactions: it is closed
    to them, too, and all of theirs below ``target_offset`` was committed."""

    @property
    def closed(self) -> frozenset[TopicPartition]:
        """What is to be closed to its writers."""
        return frozenset({self.target} | ({self.progress} if self.progress else set()))


class Resumed(NamedTuple):
    """Where a partition goes on."""

    resume: Resume
    leader_epoch: int
    """Of the last source record that is not copied again; -1: there is none."""


class Closed(NamedTuple):
    """A partition that is closed to earlier writers."""

    records: int
    """What they had appended behind the stored position; of those that could be fenced."""
    unfenced: frozenset[int]
    """Producer ids of those that could not be fenced."""


class Filling(Retriable):
    """A partition of the target is filled up to the source's first offset: go on with that."""

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
        """Who appends the data of copies that have none yet and are this task's, whoever owns them
        later; ``None``: each owner appends as itself. Raises as ``identify``."""
        ...

    def identify(self, transactional_id: str) -> OwnerProducer:
        """A new epoch: batches that carry it are refused by nobody, as long as no other follows.

        Raises ``Retriable``, and ``Fatal`` where the target grants no right to it.
        """
        ...

    def end_transactions(self, transactional_ids: Set[str]) -> None:
        """Of others: what is open is aborted. Then it is final what of theirs was committed.

        Raises ``Retriable``; a right that is missing is left to ``resume``.
        """
        ...

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | Retriable]:
        """Where the logs of these partitions of the target end those leader epochs, as their
        leaders know; without the partitions whose leader does not know it."""
        ...

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Resumed | HeadraceError]:
        """Where each partition is to be copied from, by ``own``, once no other can append any more;
        or why this one has to be tried again: it has no leader, say. ``Fatal``, with a
        ``data_writer``: its offsets cannot be those of the source.

        Partitions are those of the source. Raises ``Retriable`` for what concerns all of them.
        """
        ...

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Closed | Retriable]:
        """The same, but nothing is compared, and the source is not asked."""
        ...


class Mover(Protocol):
    """Of one flow on one driver. Thread-safe."""

    @property
    def fencing(self) -> Fencing | None:
        """None: its writers cannot be fenced."""
        ...

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts) -> Lane:
        """A lane without partitions. ``on_error`` receives sentences about brokers that are away;
        what the target acknowledges is added to ``copied``. Raises what making clients raises."""
        ...
