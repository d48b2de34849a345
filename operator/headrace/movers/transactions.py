"""Limits and stages of a lane's transactions. Each transaction contains data and progress.

Without a response to a commit, the request is repeated; the outcome is never guessed. If it stays
unknown, the lane is given up. The next owner ends what is open, then reads what was committed.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable

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
    """Nothing more is sent; what was is to be acknowledged."""
    CUT = auto()
    """It is."""
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
