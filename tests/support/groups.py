"""Consumer groups of real brokers, and the records that they read."""

import itertools
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from support.patience import WITHIN_S
from support.records import unique

from headrace.sandbox import SandboxCluster

_TRANSIENT = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
}
"""Errors of a coordinator that starts or is slow."""
_AT_END = {
    KafkaError._PARTITION_EOF,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""Errors of a consumer that has read all records, or whose topic does not exist."""


def commit(cluster: SandboxCluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets as a consumer of the group does; retry while a coordinator is not ready."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    wanted = [TopicPartition(topic, number, at) for number, at in offsets.items()]
    deadline = time.monotonic() + WITHIN_S
    with closing(Consumer(settings)) as consumer:
        while True:
            try:
                consumer.commit(offsets=wanted, asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in _TRANSIENT or time.monotonic() > deadline:
                    raise
            time.sleep(0.5)


def in_transactions(
    cluster: SandboxCluster, topic: str, batches: Iterable[tuple[int, bool]]
) -> None:
    """Write transactions with that number of records, committed or aborted.

    Each of them leaves a marker. All values differ.
    """
    name, numbers = unique("tx"), itertools.count()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(WITHIN_S)
    for size, committed in batches:
        producer.begin_transaction()
        for n in range(size):
            producer.produce(topic, f"{name}-{next(numbers)}".encode(), b"%d" % n, 0)
        assert producer.flush(WITHIN_S) == 0  # an abort would drop records that are not sent
        if committed:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)
    # A coordinator answers before the markers are written; it names no owner before they are.
    Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
    ).init_transactions(WITHIN_S)


def positions(
    cluster: SandboxCluster, topic: str, partition: int = 0
) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each committed record of a partition, as a consumer sees them.

    The list is empty if the topic does not exist.
    """
    found: list[tuple[int, bytes | None]] = []
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"neither a record nor the end of {topic}-{partition}"
            if (error := message.error()) is None:
                found.append((message.offset() or 0, message.value()))
            elif error.code() in _AT_END:
                return found
            else:
                raise KafkaException(error)


def committed(cluster: SandboxCluster, group: str) -> dict[int, tuple[int, str]]:
    """Return offset and metadata, by partition (of a group of one topic)."""
    # As a consumer: librdkafka's admin client ends the process where a coordinator loads (its issue
    # 3663). Quiet: without a line for each client that is closed.
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "log_level": 5,
    }
    with closing(Consumer(settings)) as consumer:
        topics = consumer.list_topics(timeout=60).topics
        wanted = [TopicPartition(name, at) for name in topics for at in topics[name].partitions]
        found = consumer.committed(wanted, timeout=60)
    return {at.partition: (at.offset, at.metadata or "") for at in found if at.offset >= 0}


def member(cluster: SandboxCluster, group: str, more: Mapping[str, Any] = {}) -> Consumer:
    """Return a consumer that commits only on request; ``more`` are further settings.

    A group without an offset begins at the end and therefore misses the existing records.
    """
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
        "isolation.level": "read_committed",
        **more,
    }
    return Consumer(settings)


def read_on(cluster: SandboxCluster, group: str, topic: str, records: int) -> list[bytes | None]:
    """Read a number of records in the group, commit each of them, and return their values.

    Reading ends earlier at the end of all partitions: wait before until all records are there.
    """
    values: list[bytes | None] = []
    ended: set[int | None] = set()
    with closing(member(cluster, group, {"enable.partition.eof": True})) as consumer:
        consumer.subscribe([topic])
        while len(values) < records and not (ended and len(ended) == len(consumer.assignment())):
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"neither a record nor the end of {topic}"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            values.append(message.value())
            consumer.commit(message=message, asynchronous=False)
    return values
