"""Dead-letter topics, with Kafka Connect's headers.

Dead letters have the format of ``org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter``
(KIP-298). Key, value and headers are unchanged, and additional text headers describe the error.
Headers contain Java's class names where Connect uses them, because tools depend on them. The dead
letter has its own timestamp, because the topic could reject the record's timestamp, or delete the
record as too old. A header contains the record's timestamp.
"""

from collections.abc import Mapping

from headrace.api import ClusterAccess
from headrace.assign import TaskId
from headrace.datapath.acknowledgements import Storing
from headrace.datapath.clients import Clients
from headrace.datapath.lane import RecordRefused, SourceRecord
from headrace.errors import Retriable
from headrace.kafka import ReloadingClient, translated
from headrace.timing import Clock

PREFIX = "__connect.errors."
TIMESTAMP_HEADER = "__headrace.errors.timestamp"
_ANSWER_S = 5.0
"""Time for the acknowledgement of a dead letter, in seconds. The source task waits for it."""
_CLASS = "headrace.datapath.mover.BatchLane"
_ERRORS = "org.apache.kafka.common.errors."
_EXCEPTIONS = {  # by Kafka's name, and by librdkafka's where that differs
    "MESSAGE_TOO_LARGE": f"{_ERRORS}RecordTooLargeException",
    "MSG_SIZE_TOO_LARGE": f"{_ERRORS}RecordTooLargeException",
    "RECORD_LIST_TOO_LARGE": f"{_ERRORS}RecordBatchTooLargeException",
    "INVALID_TIMESTAMP": f"{_ERRORS}InvalidTimestampException",
    "INVALID_RECORD": "org.apache.kafka.common.InvalidRecordException",
}


def context_headers(task: TaskId, refused: RecordRefused) -> dict[str, str]:
    """Return Connect's headers for a rejected record.

    The stack trace has no frames, because a broker's rejection has none.
    """
    exception = _EXCEPTIONS.get(refused.code, refused.code)
    return {
        f"{PREFIX}topic": refused.at.topic,
        f"{PREFIX}partition": str(refused.at.partition),
        f"{PREFIX}offset": str(refused.offsets.start),
        f"{PREFIX}connector.name": task.flow,
        f"{PREFIX}task.id": str(task.index),
        f"{PREFIX}stage": "KAFKA_PRODUCE",
        f"{PREFIX}class.name": _CLASS,
        f"{PREFIX}exception.class.name": exception,
        f"{PREFIX}exception.message": str(refused),
        f"{PREFIX}exception.stacktrace": f"{exception}: {refused}\n",
    }


class DeadLetters:
    """Writer of dead letters. Thread-safe.

    All tasks of a flow share one producer, which is created by the first write.
    """

    def __init__(self, target: ClusterAccess, clients: Clients, clock: Clock) -> None:
        self._target, self._clock = target, clock
        # This is Java's partitioner, so that other producers that use it put a key into the same
        # partition.
        settings = {"partitioner": "murmur2_random", "linger.ms": 0}
        self._producer = ReloadingClient(target, lambda: clients.producer(target, settings))

    def write(self, topic: str, record: SourceRecord, added: Mapping[str, str], of: str) -> None:
        """Write a record, and wait until all in-sync replicas have it.

        Args:
            topic: Dead-letter topic on the target.
            record: The rejected record.
            added: Headers to append. A header of the record with the same name is kept instead, as
                in Connect.
            of: Name of the record in messages.

        Raises:
            Fatal: The topic rejects the dead letter.
            Retriable: The outcome is unknown; the dead letter may have been written.
        """
        theirs = {name for name, _ in record.headers}
        added = {**added, TIMESTAMP_HEADER: str(record.timestamp_ms)}
        mine = [(name, text.encode()) for name, text in added.items() if name not in theirs]
        tried = f"write {of} to dead-letter topic {topic} on {self._target.alias}"
        producer = self._producer.get()
        storing = Storing(producer.poll, self._clock, tried, 1, _ANSWER_S)
        with translated(tried):
            producer.produce(
                topic,
                record.value,
                record.key,
                on_delivery=storing.delivered,
                headers=[*record.headers, *mine],
            )
        try:
            storing.wait()
        except Retriable:
            producer.purge()
            raise
