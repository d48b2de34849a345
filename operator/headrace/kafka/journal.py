"""Topic in which the jobs of a mirror test store their progress and results.

The topic is compacted and on the source cluster. Keys of records are ``<run>/<key>``, with the keys
of ``mirror_test.journal_keys``. Values are JSON. Mirrors do not copy the topic, because its name is
internal.
"""

import json
import time
from collections.abc import Iterator, Set
from typing import Any

from confluent_kafka import KafkaError, Message

from headrace.api import JOURNAL, ClusterAccess, TopicPartition, earlier_name
from headrace.errors import Fatal, GaveUp
from headrace.kafka.admin import Admin, Position
from headrace.kafka.clients import assign, make_consumer, make_producer
from headrace.kafka.errors import is_about_group, translate
from headrace.kafka.patience import patiently

TOPIC = JOURNAL

_EARLIER = earlier_name(TOPIC)
"""Name of the journal's topic in earlier versions of headrace. Jobs that an earlier version started
still write to that topic."""
_CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 3_600_000),  # a week
    "max.message.bytes": str(16 << 20),  # a manifest with 10,000 streams and partitions has 1 MB
}
_CREATION_S = 30.0
"""Maximum time until the brokers list a new topic, in seconds. Usually it takes 100 ms."""
_FLUSH_S = 30.0  # enough for three leader elections of 10 s


def create(cluster: ClusterAccess) -> None:
    """Create the topic on the source if it does not exist.

    Raise errors as ``wait_for_topics`` does.
    """
    admin = Admin(cluster)
    patiently(lambda: admin.create_topic(TOPIC, 1, config=_CONFIG))
    wait_for_topics(admin, {TOPIC})


def wait_for_topics(admin: Admin, names: Set[str]) -> None:
    """Wait until the brokers list new topics. Raise ``GaveUp`` after 30 s."""
    deadline = time.monotonic() + _CREATION_S
    while absent := names - patiently(admin.topics).keys():
        if time.monotonic() > deadline:
            missing = ", ".join(sorted(absent))
            raise GaveUp(f"{admin.name} did not show {missing} within {_CREATION_S:.0f} s")
        time.sleep(0.1)


def record_key(run: str, key: str) -> bytes:
    """Return the key of a run's record in the topic."""
    return f"{run}/{key}".encode()


def write(cluster: ClusterAccess, run: str, key: str, value: str) -> None:
    """Write one record.

    Raise ``GaveUp`` after 30 s, or the error if the broker rejects the record.
    """
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = make_producer(cluster, {"message.max.bytes": 16 << 20, "compression.type": "gzip"})
    tried = f"write {run}/{key} to {TOPIC} of {cluster.alias}"
    record = record_key(run, key)
    producer.produce(TOPIC, value.encode(), record, partition=0, on_delivery=delivered)
    if producer.flush(_FLUSH_S):
        raise GaveUp(f"could not {tried} in {_FLUSH_S:.0f} s")
    if failures:
        raise translate(failures[0], tried)


class JournalTail:
    """Reads the records of one run from the journal."""

    def __init__(self, cluster: ClusterAccess, run: str, from_start: str = "") -> None:
        """Read from the end of the journal. With ``from_start``, read that topic from its start."""
        self._prefix = record_key(run, "")
        self._consumer = make_consumer(cluster)
        admin = Admin(cluster)
        position = Position.EARLIEST if from_start else Position.LATEST
        topics = {from_start}
        if not from_start:
            topics = {TOPIC, *(patiently(admin.topics).keys() & {_EARLIER})}
        places = [TopicPartition(topic, 0) for topic in topics]
        offsets = patiently(lambda: admin.offsets(places, position))
        assign(self._consumer, offsets.items())
        self._unread = topics

    @property
    def at_end(self) -> bool:
        """True if all records that existed when this object was created have been read."""
        return not self._unread

    def poll(self, timeout_s: float) -> Iterator[tuple[str, Any]]:
        """Yield the keys (without the run) and values of new records.

        Wait at most ``timeout_s``.
        """
        while (message := self._consumer.poll(timeout_s)) is not None:
            timeout_s = 0
            if not is_record(message, f"read {TOPIC}"):
                if ends_partition(message):
                    self._unread.discard(message.topic() or "")
                continue
            key, value = message.key() or b"", message.value()
            if key.startswith(self._prefix) and value is not None:
                yield key.removeprefix(self._prefix).decode(), json.loads(value)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read(cluster: ClusterAccess, run: str, key: str, timeout_s: float = 30.0) -> Any:
    """Return the latest value of a key, or None. Raise ``GaveUp`` after ``timeout_s``."""
    return read_all(cluster, run, timeout_s).get(key)


def read_all(cluster: ClusterAccess, run: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """Return the latest value of each key of a run. Raise ``GaveUp`` after ``timeout_s``."""
    there = patiently(Admin(cluster).topics).keys()
    found: dict[str, Any] = {}
    for topic in (_EARLIER, TOPIC):
        if topic in there:
            found |= _read_topic(cluster, run, topic, timeout_s)
    return found


def _read_topic(cluster: ClusterAccess, run: str, topic: str, timeout_s: float) -> dict[str, Any]:
    tail = JournalTail(cluster, run, from_start=topic)
    deadline = time.monotonic() + timeout_s
    found = {}
    try:
        while not tail.at_end:
            if time.monotonic() > deadline:
                raise GaveUp(f"could not read {topic} of {cluster.alias} in {timeout_s:.0f} s")
            for key, value in tail.poll(0.5):
                found[key] = value
    finally:
        tail.close()
    return found


def is_record(message: Message, tried: str) -> bool:
    """Return True if the message is a record, and raise permanent errors.

    Return False for the end of a partition, for a missing permission for the group, and for errors
    that the client retries. A failed offset reset (``_AUTO_OFFSET_RESET``) is raised.
    """
    error = message.error()
    if error is None:
        return True
    if ends_partition(message) or is_about_group(error):
        return False
    problem = translate(error, tried)
    if isinstance(problem, Fatal) or error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise problem
    return False  # the client retries by itself


def ends_partition(message: Message) -> bool:
    """Return True if the message reports the end of a partition."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF
