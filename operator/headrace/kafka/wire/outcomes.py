"""What a response to Produce means for each batch."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.produce.v9 import ProduceResponse

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire.errors import refusal


class Outcome(Enum):
    """Of one batch of a Produce request."""

    APPENDED = auto()
    """By all in-sync replicas, now or before."""
    AGAIN = auto()
    """Perhaps appended; the same bytes with the same sequence are never appended twice."""
    OUT_OF_ORDER = auto()
    """Not appended: one before it is missing."""
    TOO_LARGE = auto()
    CORRUPT = auto()
    """The checksum does not fit."""
    REFUSED = auto()
    """For what a record is."""
    INDEFINITE = auto()
    """The target does not take this producer, or cannot say."""
    FORBIDDEN = auto()
    """Somebody has to change something first."""


_NAMED = {
    ErrorCode.out_of_order_sequence_number: Outcome.OUT_OF_ORDER,
    ErrorCode.message_too_large: Outcome.TOO_LARGE,
    ErrorCode.record_list_too_large: Outcome.TOO_LARGE,
    ErrorCode.corrupt_message: Outcome.CORRUPT,
    ErrorCode.invalid_record: Outcome.REFUSED,
    ErrorCode.invalid_timestamp: Outcome.REFUSED,
    ErrorCode.duplicate_sequence_number: Outcome.INDEFINITE,
    ErrorCode.invalid_producer_epoch: Outcome.INDEFINITE,
    ErrorCode.invalid_producer_id_mapping: Outcome.INDEFINITE,
    ErrorCode.unknown_producer_id: Outcome.INDEFINITE,
    ErrorCode.producer_fenced: Outcome.INDEFINITE,
    ErrorCode.unknown_server_error: Outcome.INDEFINITE,
}


class Answer(NamedTuple):
    """For the batch of one partition."""

    outcome: Outcome
    base_offset: int
    """Of its first record, if it is appended; -1: the broker does not know it any more."""
    code: ErrorCode
    refused: tuple[int, ...] = ()
    """Indexes of records that the broker names (KIP-467)."""
    reason: str | None = None
    """Of the broker."""

    @property
    def name(self) -> str:
        """Of the error, in the protocol: ``MESSAGE_TOO_LARGE``."""
        return self.code.name.upper()

    def error(self, tried: str) -> HeadraceError:
        """With what was tried, as for ``refusal``."""
        error = refusal(self.code, tried)
        if self.reason:
            error.args = (f"{error} ({self.reason})",)
        return error


def answers(response: ProduceResponse) -> Iterator[tuple[TopicPartition, Answer]]:
    """Of each partition."""
    for topic in response.responses:
        for one in topic.partition_responses:
            at = TopicPartition(topic.name, one.index)
            if one.error_code is ErrorCode.none:
                yield at, Answer(Outcome.APPENDED, one.base_offset, one.error_code)
            else:
                refused = tuple(sorted(record.batch_index for record in one.record_errors))
                reason = one.error_message or next(
                    (record.batch_index_error_message for record in one.record_errors), None
                )
                yield at, Answer(_outcome(one.error_code), -1, one.error_code, refused, reason)


def _outcome(code: ErrorCode) -> Outcome:
    if (named := _NAMED.get(code)) is not None:
        return named
    return Outcome.AGAIN if code.retriable else Outcome.FORBIDDEN
