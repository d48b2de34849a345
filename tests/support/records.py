"""Records of real topics: written, read, compared."""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.patience import WITHIN_S

from headrace.api import ClusterAccess
from headrace.api.partitions import TopicPartition
from headrace.errors import Retriable
from headrace.kafka import Admin, Position, assign, make_consumer, make_producer
from headrace.kafka.patience import patiently


class Record(NamedTuple):
    """Content that a mirror has to preserve."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


_names = itertools.count(1)

LINGER = {"linger.ms": "100", "queue.buffering.max.messages": "1000000"}
"""Producer settings for steady loads.

If more than 5 requests are to be sent, one a partition, librdkafka's idempotent producer polls
without a pause until the first is answered. On a busy machine that takes some 10 ms, and uses a
core that the broker then lacks. The queue holds what is due after a broker or this process stalled
for minutes.
"""

_ONE_BATCH_MS = 5_000
"""``linger.ms`` of ``produce_with``: a producer that stalls for a while still makes one batch.

A flush does not wait for it.
"""

_IN_ORDER = {"enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}
"""Producer settings that keep the order of records, also if a request is repeated."""

_ANSWER_S = 30.0
"""Longest wait for an answer of a broker. Within ``wait_until``, another request follows."""

_NEXT_RECORD_S = 60.0
"""Longest wait for the next record of a topic that holds more."""

# Not in the past: a broker deletes by the records' timestamps, and checks 30 s after its start.
_NOW_MS = int(time.time() * 1000)


def unique(word: str) -> str:
    """Return a name that no other test uses."""
    return f"{word}-{time.time_ns() % 10**9}-{next(_names)}"


def make_topic(cluster: ClusterAccess, name: str, partitions: int, **config: str) -> str:
    """Create a topic and wait until its partitions can be used."""
    admin = Admin(cluster, _ANSWER_S)
    # A broker that starts again may end the first request.
    patiently(lambda: admin.create_topic(name, partitions, config=config))
    ats = [TopicPartition(name, n) for n in range(partitions)]
    patiently(lambda: admin.offsets(ats, Position.LATEST))
    return name


def delete_records(cluster: ClusterAccess, topic: str, before: Mapping[int, int]) -> None:
    """Delete the records before these offsets, by partition, as retention does."""
    client = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    places = [confluent_kafka.TopicPartition(topic, number, at) for number, at in before.items()]
    for deleted in client.delete_records(places).values():
        deleted.result(WITHIN_S)


def set_topic(cluster: ClusterAccess, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    client.incremental_alter_configs([resource])[resource].result(WITHIN_S)


def produce(
    cluster: ClusterAccess,
    topic: str,
    records: Iterable[Record],
    settings: Mapping[str, str] = {},
) -> None:
    """Write these, and wait until all are acknowledged.

    The producer is not idempotent: an idempotent one first waits half a second for its id.
    """
    producer = make_producer(cluster, {**_IN_ORDER, **settings})
    failed = []
    for record in records:
        while len(producer) > 50_000:
            producer.poll(0.1)
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0
    assert not failed


def produce_with(
    cluster: ClusterAccess, topic: str, records: Iterable[Record], **settings: Any
) -> Producer:
    """Write records by a producer with settings of its own, in as few batches as it permits.

    With ``transactional.id``, the transaction is open afterwards.
    """
    producer = make_producer(cluster, {"linger.ms": _ONE_BATCH_MS, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
    for one in records:
        producer.produce(
            topic, one.value, one.key, one.partition,
            timestamp=one.timestamp_ms, headers=list(one.headers),
        )  # fmt: skip
    assert producer.flush(WITHIN_S) == 0
    return producer


def numbered(count: int, partitions: int | Sequence[int], first: int = 0) -> list[Record]:
    """Return distinct records, spread over all partitions or over the named ones in turn."""
    to = range(partitions) if isinstance(partitions, int) else partitions
    return [
        Record(to[n % len(to)], b"key-%d" % n, b"value-%d" % n, (("n", b"%d" % n),), _NOW_MS + n)
        for n in range(first, first + count)
    ]


def read(cluster: ClusterAccess, topic: str) -> dict[int, list[Record]]:
    """Return a topic's committed records by partition, in order; none if it does not exist."""
    admin = Admin(cluster, _ANSWER_S)
    partitions = [TopicPartition(topic, n) for n in range(admin.topics().get(topic, 0))]
    if not partitions:
        return {}
    ends = admin.offsets(partitions, Position.LAST_STABLE)
    starts = admin.offsets(partitions, Position.EARLIEST)
    consumer = make_consumer(cluster)
    assign(consumer, list(starts.items()))
    found: dict[int, list[Record]] = defaultdict(list)
    waiting = {at.partition for at in partitions if ends[at] > starts[at]}
    with closing(consumer):
        while waiting:
            message = consumer.poll(_NEXT_RECORD_S)
            if message is None:
                raise Retriable(
                    f"no record within {_NEXT_RECORD_S} s, waiting for {waiting} of {topic}"
                )
            partition = message.partition()
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                waiting.discard(partition)
                continue
            assert partition is not None
            headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
            found[partition].append(
                Record(
                    partition,
                    message.key(),
                    message.value(),
                    tuple(headers),
                    message.timestamp()[1],
                )
            )
    return dict(found)


def arrived(cluster: ClusterAccess, topic: str) -> int:
    """Return the number of records that a consumer of a small topic gets."""
    return sum(map(len, read(cluster, topic).values()))


def count(cluster: ClusterAccess, topic: str) -> int:
    """Return the number of offsets of a topic, including markers of fences."""
    admin = Admin(cluster, _ANSWER_S)
    partitions = [TopicPartition(topic, n) for n in range(admin.topics().get(topic, 0))]
    return sum(admin.offsets(partitions, Position.LATEST).values()) if partitions else 0


def has_all_markers(cluster: ClusterAccess, topic: str) -> bool:
    """Return whether no transaction is open on a topic.

    A coordinator answers a commit before the markers are written. Until then, readers of committed
    records do not find what was committed.
    """
    admin = Admin(cluster, _ANSWER_S)
    partitions = [TopicPartition(topic, n) for n in range(admin.topics().get(topic, 0))]
    stable = admin.offsets(partitions, Position.LAST_STABLE)
    return stable == admin.offsets(partitions, Position.LATEST)


class Comparison(NamedTuple):
    """A mirror's result: no record may be missing or out of order; repeats are counted."""

    missing: int
    repeated: int
    in_order: bool


def compare(source: dict[int, list[Record]], target: dict[int, list[Record]]) -> Comparison:
    """Compare by partition: first occurrences on the target must be the source, in its order."""
    missing = repeated = 0
    in_order = True
    for partition, expected in source.items():
        got = target.get(partition, [])
        firsts = list(dict.fromkeys(got))
        missing += len(set(expected) - set(firsts))
        repeated += len(got) - len(firsts)
        present = set(firsts)
        in_order &= firsts == [record for record in expected if record in present]
    return Comparison(missing, repeated, in_order)


class Load:
    """Writes numbered records at a steady rate until its ``with`` block ends."""

    def __init__(
        self,
        cluster: ClusterAccess,
        topic: str,
        partitions: int | Sequence[int],
        per_second: int,
        *,
        stamped_now: bool = False,
        first: int = 0,
    ) -> None:
        """Prepare the producer of a steady load.

        ``stamped_now`` gives records the time of sending, not the time that ``numbered`` sets.
        ``first`` is the number of the first record.
        """
        self._stamped_now, self._first = stamped_now, first
        self._cluster, self._topic = cluster, topic
        self._partitions, self._per_second = partitions, per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = make_producer(self._cluster, LINGER)
        started = time.monotonic()
        while not self._stop.wait(0.01):
            due = int((time.monotonic() - started) * self._per_second)
            for record in numbered(
                due - self.sent, self._partitions, first=self._first + self.sent
            ):
                producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    record.partition,
                    timestamp=self._stamp_ms(record),
                    headers=list(record.headers),
                )
            self.sent = due
            producer.poll(0)
        assert producer.flush(WITHIN_S) == 0

    def _stamp_ms(self, record: Record) -> int:
        return int(time.time() * 1000) if self._stamped_now else record.timestamp_ms
