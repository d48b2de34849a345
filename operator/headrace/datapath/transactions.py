"""Limits and stages of a lane's transactions, and their committed records.

Without a response to a commit, the request is repeated; the outcome is never guessed. If it stays
unknown, the lane is given up. The next owner ends what is open, then reads what was committed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.replication import TargetSeen
from headrace.replication.progress import ContiguousRange, CopiedRuns

TRANSACTION_MS = 60_000
"""Maximum duration of a transaction (``transaction.timeout.ms``); its coordinator then aborts it.
"""
ANSWERED_WITHIN_S = 55.0
"""A commit without an answer is sent again for so long: less than ``TRANSACTION_MS``."""
CUT_WITHIN_S = 15.0
"""Time for a partition. A slower one delays all others of its task: the transaction is given up,
and the task continues without the partition. Less than ``TRANSACTION_MS``.
"""
VISIBLE_WITHIN_S = 5.0
"""From a commit to its markers, which its coordinator sends at once."""
POLL_S = 0.005
ABORT_S = 1.0
"""Time to abort at the end of a lane. An open transaction would delay readers of committed records
for a minute.
"""
LANE_AGE_S = 86_400.0
"""Coordinators forget an id that nobody asks for within a week (transactional.id.expiration.ms):
nobody could fence it then. So a lane gets another epoch each day."""
_LOST = {
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "_FENCED",  # librdkafka's word for it
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_ABORTABLE",
}
"""Another owner, or the coordinator after a minute, has ended the transaction."""

Records = Sequence[tuple[bytes, bytes]]
"""Keys and values, of progress."""


class TransactionStage(Enum):
    """Stage of a lane's transaction."""

    COPYING = auto()
    CUTTING = auto()
    """The lane no longer sends, and waits for the acknowledgement of sent records."""
    CUT = auto()
    """All sent records are acknowledged."""
    COMMITTING = auto()


def is_lost(code: str) -> bool:
    """Return whether an error with this name in the protocol says that the transaction is over.

    Another lane may then succeed.
    """
    return code.upper() in _LOST


def lost(error: object) -> Retriable:
    """Return the error to raise for such an error."""
    return Retriable(f"{error}: its transaction was ended by another owner, or took too long")


def not_acknowledged(target: str) -> Retriable:
    """Why a transaction is given up that could not be cut."""
    return Retriable(
        f"{target} did not acknowledge all records of a transaction within {CUT_WITHIN_S:.0f} s: "
        "it is aborted"
    )


def not_visible(
    ends: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the committed ends that consumers of committed records have not reached.

    ``stable`` has the known last stable offsets. Brokers lose the marker of a partition without a
    leader. Each marker must have arrived, or the next abort drops what was committed.
    """
    return {at: end for at, end in ends.items() if stable.get(at, -1) < end}


def marker_missing(target: str, late: Mapping[TopicPartition, int]) -> HeadraceError:
    """Return the error with which a lane is given up, so that a takeover corrects the partition.

    Otherwise the next abort would drop committed records, or consumers would wait for them in vain.
    """
    first = min(late)
    return Retriable(
        f"a transaction is open on {first} of {target} below offset {late[first]}, up to which all "
        "is committed: its marker was lost, or another client writes there"
    )


class Mark(NamedTuple):
    """How far a partition is copied: see ``Reached``."""

    acknowledged: int
    target_offset: int | None
    leader_epoch: int
    target_seen: TargetSeen | None = None


class CommitWindow(ABC):
    """Acknowledged and committed records of one partition.

    In a lane without transactions ``committed`` is None: acknowledged records count as copied.
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
        """The next source offset to read."""
        self.runs = CopiedRuns()
        self.committed: Mark | None = None
        """Mark of the last transaction, in a lane that copies in transactions."""
        self.uncommitted = 0
        """Records acknowledged since."""
        self.unexpected_offsets = 0
        """How often an acknowledged target offset was not the expected one: a foreign writer."""
        self.last_timestamp_ms: int | None = None
        """Timestamp of the last acknowledged record."""
        self._uncommitted_ms: int | None = None
        self._markers = 0
        """Number of transaction markers after the last record on the target."""
        self._cut_runs: list[ContiguousRange] = []
        self._committed_runs: list[ContiguousRange] = []

    @abstractmethod
    def mark(self) -> Mark:
        """How far it is acknowledged."""

    @property
    @abstractmethod
    def unfinished(self) -> int:
        """Records that are sent, and not yet acknowledged, or not committed."""

    @property
    def done(self) -> Mark:
        """How far it is copied: acknowledged, or committed."""
        return self.committed or self.mark()

    @property
    def changed(self) -> bool:
        """Whether a transaction would commit more than the last one has."""
        return self.committed is not None and self.committed.acknowledged != self.position

    def begin_transactions(self) -> None:
        """Count records as copied only after their commit from now on."""
        self.committed = self.mark()

    def commit(self, *, marked: bool) -> None:
        """Count all sent records as committed.

        Args:
            marked: Whether the commit wrote a marker to this partition.
        """
        self.committed, self.uncommitted = self.mark(), 0
        self._committed_runs += self.cut_runs()
        self._cut_runs = []
        # It takes an offset. But who acknowledges it, and in which leader epoch, is not known here:
        # a leader that dies now may lose it, and the next one write it again.
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
        """Count more acknowledged records from ``at``, an offset of the target."""
        if expected is not None and at != expected + self._markers:
            self.unexpected_offsets += 1
        self._markers = 0
        self.last_timestamp_ms = timestamp_ms
        if self.committed is not None:
            if not self.uncommitted:
                self._uncommitted_ms = timestamp_ms
            self.uncommitted += records
