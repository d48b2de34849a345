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

from headrace.sandbox import SandboxCluster


def commit(cluster: SandboxCluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets as a consumer of the group does; retry while a coordinator loads."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    wanted = [TopicPartition(topic, number, at) for number, at in offsets.items()]
    with closing(Consumer(settings)) as consumer:
        while True:
            try:
                consumer.commit(offsets=wanted, asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
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
    """Return offset and value of each committed record of a partition, as a consumer sees them."""
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
            assert message is not None, f"no end of {topic}-{partition} within {WITHIN_S} s"
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                return found
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
        topics = consumer.list_topics(timeout=60).topics
        wanted = [TopicPartition(name, at) for name in topics for at in topics[name].partitions]
        found = consumer.committed(wanted, timeout=60)
    return {at.partition: (at.offset, at.metadata or "") for at in found if at.offset >= 0}


def member(cluster: SandboxCluster, group: str) -> Consumer:
    """Return a consumer that commits only on request.

    A group without an offset begins at the end and therefore misses the existing records.
    """
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
        "isolation.level": "read_committed",
    }
    return Consumer(settings)


def read_on(cluster: SandboxCluster, group: str, topic: str, records: int) -> list[bytes | None]:
    """Read a number of records in the group, commit each of them, and return their values.

    Reading ends earlier if no record arrives for five seconds.
    """
    values: list[bytes | None] = []
    with closing(member(cluster, group)) as consumer:
        consumer.subscribe([topic])
        wait_s = 30.0  # to join
        while len(values) < records and (message := consumer.poll(wait_s)) is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
            consumer.commit(message=message, asynchronous=False)
            wait_s = 5.0
    return values
