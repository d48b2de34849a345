"""Limits and stages of a lane's transactions, and their committed records.

A commit request without a response is repeated; its outcome is never guessed. If the outcome stays
unknown, the lane is closed. The next owner ends the open transaction, then reads the committed
offsets.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.replication import TargetSeen
from headrace.replication.progress import ContiguousRange, CopiedRuns

TRANSACTION_MS = 60_000
"""Maximum duration of a transaction (``transaction.timeout.ms``). The coordinator aborts a longer
one."""
ANSWERED_TIMEOUT_S = 55.0
"""Time in seconds for which a commit without a response is sent again. The time is shorter than
``TRANSACTION_MS``."""
CUT_TIMEOUT_S = 15.0
"""Time limit in seconds for the acknowledgement of all sent records of a transaction. A slower
partition would delay all other partitions of its task, so the transaction is aborted. The limit is
less than ``TRANSACTION_MS``."""
VISIBLE_TIMEOUT_S = 5.0
"""Maximum time in seconds from a commit until the coordinator has written its markers. A
coordinator normally writes them at once."""
POLL_S = 0.005
ABORT_S = 1.0
"""Time to abort the transaction of a lane that is closed. An open transaction would delay
read-committed consumers for a minute."""
LANE_AGE_S = 86_400.0
"""Maximum age of a lane. Coordinators forget a transactional id that is unused for a week
(``transactional.id.expiration.ms``), and its producer could not be fenced then. Therefore each lane
gets a new epoch every day."""
_LOST = {
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "_FENCED",  # librdkafka's name of PRODUCER_FENCED
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_ABORTABLE",
}
"""Names of protocol errors after which the transaction cannot continue: another owner ended it, or
the coordinator did after a minute."""

Records = Sequence[tuple[bytes, bytes]]
"""Keys and values of progress records."""


class TransactionStage(StrEnum):
    """Stage of a lane's transaction."""

    COPYING = "Copying"
    """Records are read and sent. The first one of a partition adds it to the transaction."""
    CUTTING = "Cutting"
    """The lane sends no more records, and waits for the acknowledgement of sent records."""
    CUT = "Cut"
    """All sent records are acknowledged."""
    COMMITTING = "Committing"
    """Progress is appended, the commit is requested, and its markers are awaited."""
    LOST = "Lost"
    """The lane can no longer commit. The next owner ends the transaction."""


STAGES: Mapping[TransactionStage, Set[TransactionStage]] = {
    TransactionStage.COPYING: {TransactionStage.CUTTING, TransactionStage.LOST},
    TransactionStage.CUTTING: {TransactionStage.CUT, TransactionStage.LOST},
    TransactionStage.CUT: {
        TransactionStage.COPYING,
        TransactionStage.COMMITTING,
        TransactionStage.LOST,
    },
    TransactionStage.COMMITTING: {TransactionStage.COPYING, TransactionStage.LOST},
    TransactionStage.LOST: frozenset(),
}
"""Legal transitions. ``docs/architecture.md`` shows them as a picture."""


def is_lost(code: str) -> bool:
    """Return whether a protocol error with this name means that the transaction has ended.

    A new lane may then succeed.
    """
    return code.upper() in _LOST


def lost(error: object) -> Retriable:
    """Return an error that says that the transaction has ended."""
    return Retriable(f"{error}: its transaction was ended by another owner, or took too long")


def not_acknowledged(target: str) -> Retriable:
    """Return the error for a transaction whose records were not acknowledged in time."""
    return Retriable(
        f"{target} did not acknowledge all records of a transaction within {CUT_TIMEOUT_S:.0f} s: "
        "it is aborted"
    )


def not_visible(
    ends: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the ends of committed records that are above the last stable offset.

    The commit marker is missing in these partitions. Either it is not yet written, or the brokers
    lost it because the partition had no leader. Without the marker, read-committed consumers cannot
    read the records, and the next abort would drop them.

    Args:
        ends: End of the committed records of each partition.
        stable: Last stable offset of each partition, if it is known.
    """
    return {at: end for at, end in ends.items() if stable.get(at, -1) < end}


def marker_missing(target: str, late: Mapping[TopicPartition, int]) -> HeadraceError:
    """Return the error for committed ends that did not become visible.

    The lane is closed, so that a takeover writes the missing marker. Otherwise the next abort would
    drop committed records, or read-committed consumers would wait forever.
    """
    first = min(late)
    return Retriable(
        f"a transaction is open on {first} of {target} below offset {late[first]}, up to which all "
        "is committed: its marker was lost, or another client writes there"
    )


class Mark(NamedTuple):
    """State of a partition's copy. The fields have the meaning of the fields of ``Reached``."""

    acknowledged: int
    target_offset: int | None
    leader_epoch: int
    target_seen: TargetSeen | None = None


class CommitLedger(ABC):
    """Acknowledged and committed records of one partition.

    In a lane without transactions, ``committed`` is None, and acknowledged records count as copied.
    """

    __slots__ = (
        "_committed_runs",
        "_cut_runs",
        "_markers",
        "_uncommitted_ms",
        "committed",
        "last_timestamp_ms",
        "position",
        "runs",
        "uncommitted",
        "unexpected_offsets",
    )

    def __init__(self, position: int) -> None:
        self.position = position
        """Next source offset to read."""
        self.runs = CopiedRuns()
        self.committed: Mark | None = None
        """State at the last commit; None in a lane without transactions."""
        self.uncommitted = 0
        """Number of records acknowledged after the last commit."""
        self.unexpected_offsets = 0
        """Number of acknowledged batches with an unexpected target offset, which another writer
        causes."""
        self.last_timestamp_ms: int | None = None
        """Timestamp of the last acknowledged record."""
        self._uncommitted_ms: int | None = None
        self._markers = 0
        """Number of transaction markers after the last record on the target."""
        self._cut_runs: list[ContiguousRange] = []
        self._committed_runs: list[ContiguousRange] = []

    @abstractmethod
    def mark(self) -> Mark:
        """Return the state of the acknowledged records."""

    @property
    @abstractmethod
    def unfinished(self) -> int:
        """Number of records that are sent and not yet acknowledged, or not committed."""

    @property
    def done(self) -> Mark:
        """State of the copied records.

        In a lane with transactions, committed records count as copied. Otherwise acknowledged
        records do.
        """
        return self.committed or self.mark()

    @property
    def changed(self) -> bool:
        """Whether a transaction would commit more than the last one did.

        It is False in a lane without transactions.
        """
        return self.committed is not None and self.committed.acknowledged != self.position

    def begin_transactions(self) -> None:
        """Begin to count records as copied only after their commit."""
        self.committed = self.mark()

    def commit(self, *, marked: bool) -> None:
        """Count all sent records as committed.

        Args:
            marked: Whether the commit wrote a marker to this partition.
        """
        self.committed, self.uncommitted = self.mark(), 0
        self._committed_runs += self.cut_runs()
        self._cut_runs = []
        # The marker occupies a target offset. The target position is not advanced past it, because
        # the leader and epoch that wrote the marker are unknown here. If that leader dies now, the
        # marker may be lost, and the next leader writes it again.
        self._markers += marked

    def cut_runs(self) -> list[ContiguousRange]:
        """Return the ranges that are acknowledged and not committed."""
        self._cut_runs += self.runs.take()
        return self._cut_runs

    def take_runs(self) -> list[ContiguousRange]:
        if self.committed is None:
            return self.runs.take()
        taken, self._committed_runs = self._committed_runs, []
        return taken

    def _count(self, records: int, timestamp_ms: int, at: int, expected: int | None) -> None:
        """Count acknowledged records.

        Args:
            records: Number of records.
            timestamp_ms: Newest timestamp of the records.
            at: Their first target offset.
            expected: Target offset after the previous records, without markers; None if unknown.
        """
        if expected is not None and at != expected + self._markers:
            self.unexpected_offsets += 1
        self._markers = 0
        self.last_timestamp_ms = timestamp_ms
        if self.committed is not None:
            if not self.uncommitted:
                self._uncommitted_ms = timestamp_ms
            self.uncommitted += records
