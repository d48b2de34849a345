"""Consumer groups of real brokers, and the records that they read."""

import itertools
import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from support.patience import WITHIN_S
from support.records import unique

from headrace.errors import Retriable
from headrace.sandbox import SandboxCluster

_NEXT_RECORD_S = 60.0
"""Longest wait for the next record, or for the end of the partition."""

_QUIET_S, _POLL_S = 5.0, 1.0

_LATER = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
}
"""Errors of a coordinator that starts, moves, or is slow."""


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
                if error.args[0].code() not in _LATER or time.monotonic() > deadline:
                    raise
            time.sleep(0.5)


def in_transactions(
    cluster: SandboxCluster, topic: str, batches: Iterable[tuple[int, bool]]
) -> None:
    """Write transactions with that number of records, committed or aborted.

    Each of them leaves a marker. All values differ.
    """
    name, numbers = unique("tx"), itertools.count()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
    # One batch for each transaction, even if this process stalls. A flush does not wait for it.
    producer = Producer({**settings, "linger.ms": 5_000})
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
    Producer(settings).init_transactions(WITHIN_S)


def positions(
    cluster: SandboxCluster, topic: str, partition: int = 0
) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each committed record of a partition, as a consumer sees them.

    A topic that does not exist has none. Raises KafkaException or Retriable if the brokers do not
    answer.
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
        if partition not in consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions:
            return []
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(_NEXT_RECORD_S)
            if message is None:
                raise Retriable(f"no record within {_NEXT_RECORD_S} s of {topic}/{partition}")
            if error := message.error():
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                raise KafkaException(error)
            found.append((message.offset() or 0, message.value()))


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
        topics = consumer.list_topics(timeout=WITHIN_S).topics
        wanted = [TopicPartition(name, at) for name in topics for at in topics[name].partitions]
        found = consumer.committed(wanted, timeout=WITHIN_S)
    return {at.partition: (at.offset, at.metadata or "") for at in found if at.offset >= 0}


def member(cluster: SandboxCluster, group: str, **more: str) -> Consumer:
    """Return a consumer that commits only on request.

    A group without an offset begins at the end and therefore misses the existing records. ``more``
    are further settings.
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

    Reading ends earlier if all partitions are read to their ends, and no record arrives for five
    seconds.
    """
    values: list[bytes | None] = []
    read_to_end = set[int | None]()
    with closing(member(cluster, group, **{"enable.partition.eof": "true"})) as consumer:
        consumer.subscribe([topic])
        last_s = time.monotonic()
        while len(values) < records:
            quiet_s = time.monotonic() - last_s
            assert quiet_s < WITHIN_S, f"{group} has read {len(values)} records of {topic}"
            assigned = {at.partition for at in consumer.assignment()}
            if assigned and read_to_end >= assigned and quiet_s > _QUIET_S:
                break
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                read_to_end.add(message.partition())
                continue
            last_s = time.monotonic()
            read_to_end.discard(message.partition())
            values.append(message.value())
            consumer.commit(message=message, asynchronous=False)
    return values
