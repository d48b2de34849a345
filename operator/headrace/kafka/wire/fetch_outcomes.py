"""Consequences of a broker's response for a partition of a Fetch request."""

from enum import Enum, auto

from kio.schema.errors import ErrorCode


class FetchOutcome(Enum):
    """Outcome for one partition."""

    FETCHED = auto()
    MOVED = auto()
    """Look for its leader, and at the topic's id; then ask again."""
    OUT_OF_RANGE = auto()
    """That broker does not have this offset."""
    CORRUPT = auto()
    """That broker cannot read its log."""
    REFUSED = auto()
    """Anything else."""


_OUTCOMES = {
    ErrorCode.none: FetchOutcome.FETCHED,
    ErrorCode.offset_out_of_range: FetchOutcome.OUT_OF_RANGE,
    ErrorCode.corrupt_message: FetchOutcome.CORRUPT,
} | dict.fromkeys(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    ),
    FetchOutcome.MOVED,
)


def fetch_outcome(code: ErrorCode) -> FetchOutcome:
    """Return the outcome for a partition's error code."""
    return _OUTCOMES.get(code, FetchOutcome.REFUSED)
