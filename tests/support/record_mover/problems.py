"""Why a record lane does not copy a partition any further, by the errors of its clients."""

from support.record_mover.in_flight_window import InFlightWindow

from headrace.datapath.lane import OffsetGone, Problem, RecordRefused, SourceRecord
from headrace.errors import Retriable
from headrace.kafka import KafkaError, Message, diverged_at, translate
from headrace.logs import get_logger

log = get_logger(__name__)


def read_problem(
    window: InFlightWindow, message: Message, error: KafkaError, source: str
) -> Problem | None:
    if error.code() == KafkaError._PARTITION_EOF:
        window.passed(message.offset() or 0)
        return None
    at = window.at
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        why, diverged = f"{at} of {source}: {error.str()}", diverged_at(error)
        return Problem(at, OffsetGone(at, window.position, why, diverged_at=diverged))
    offset = message.offset() or 0
    offset = offset if offset >= 0 else window.position
    failure = translate(error, f"read {at} offset {offset} of {source}")
    if isinstance(failure, Retriable):
        log.info("read failed, client retries", partition=str(at), reason=str(failure))
        return None
    return Problem(at, failure)


def write_problem(
    window: InFlightWindow, error: KafkaError, alone: Message | None, source: str, target: str
) -> Problem:
    at = window.at
    failure = translate(
        error,
        f"write {at} offset {window.error_at} of {source} to {window.target_topic} on {target}",
    )
    if window.refused is None:
        return Problem(at, failure)
    record = _source_record(alone) if alone is not None else None
    return Problem(at, RecordRefused(at, window.refused, error.name(), str(failure), record))


def _source_record(message: Message) -> SourceRecord:
    headers = message.headers() or []
    return SourceRecord(
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers if isinstance(headers, list) else list(headers.items()),
    )
