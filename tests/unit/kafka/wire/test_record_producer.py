"""Producer of single records on connections whose cluster id is compared."""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode
from support.fake_broker import Serve, metadata_of
from support.fake_kafka import FakeCluster, FakeKafka
from support.wire_kafka import (
    LOST,
    METADATA,
    PRODUCE,
    REFUSED,
    UNANSWERED,
    Fault,
    Refusal,
    WireCluster,
)

from headrace.api import TopicPartition
from headrace.kafka.clients import partition_of
from headrace.kafka.record_producer import DeliveryReport, DeliveryReports, RecordProducer
from headrace.kafka.wire import Batch

WaitUntil = Callable[..., Any]
TOPIC = "orders"


class Brokers:
    """A cluster of one broker, and the outcomes that its producer reported."""

    def __init__(self, serve: Serve) -> None:
        self.cluster: FakeCluster = FakeKafka("west").clusters["west"]
        self.cluster.create_topic(TOPIC, 2)
        self.wire = WireCluster(serve, self.cluster, TOPIC, 2)
        self.reported: list[int | None] = []

    def producer(self, **settings: str) -> RecordProducer:
        access = replace(self.wire.access, cluster_id="id-of-west")
        return RecordProducer(access, settings)

    def note(self, error: KafkaError | None, _: object) -> None:
        self.reported.append(error.code() if error else None)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return self.cluster.records(TOPIC, partition)


@pytest.fixture
def brokers(serve: Serve) -> Brokers:
    return Brokers(serve)


def faults(*of_each: Fault) -> Callable[[int, Batch], Fault]:
    """Return the faults of consecutive batches. Later ones have none."""
    left = list(of_each)
    return lambda *_: left.pop(0) if left else None


@pytest.mark.parametrize("fault", [LOST, UNANSWERED, REFUSED])
def test_records_arrive_once_and_in_order_whatever_happens_to_their_batch(
    brokers: Brokers, fault: Fault
) -> None:
    brokers.wire.fault = faults(None, fault, None, fault, fault)
    producer = brokers.producer()
    for number in range(40):
        producer.produce(TOPIC, b"%d" % number, b"key", 0, on_delivery=brokers.note)
        producer.poll()
        if number % 10 == 0:
            assert producer.flush(20) == 0
    assert producer.flush(20) == 0
    assert brokers.reported == [None] * 40
    assert brokers.values() == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize(
    "code", [ErrorCode.out_of_order_sequence_number, ErrorCode.invalid_producer_epoch]
)
def test_a_producer_id_that_the_target_does_not_accept_is_replaced(
    brokers: Brokers, code: ErrorCode
) -> None:
    brokers.wire.fault = faults(None, Refusal(code))
    producer = brokers.producer()
    for number in range(3):
        producer.produce(TOPIC, b"%d" % number, b"key", 0, on_delivery=brokers.note)
        assert producer.flush(20) == 0
    assert brokers.reported == [None] * 3
    assert brokers.values() == [b"0", b"1", b"2"]
    writers = [brokers.wire.writers[TopicPartition(TOPIC, 0), offset] for offset in range(3)]
    assert writers[0] != writers[1] == writers[2]


def test_a_batch_that_the_target_has_already_is_not_sent_again(brokers: Brokers) -> None:
    brokers.wire.fault = faults(None, Refusal(ErrorCode.duplicate_sequence_number))
    producer = brokers.producer()
    for number in range(3):
        producer.produce(TOPIC, b"%d" % number, b"key", 0, on_delivery=brokers.note)
        brokers.wire.producer_states.clear()  # the leader takes the following sequence, too
        assert producer.flush(20) == 0
    assert brokers.reported == [None] * 3
    assert brokers.values() == [b"0", b"2"]


def test_keys_choose_partitions_as_java_does(brokers: Brokers) -> None:
    producer = brokers.producer(partitioner="murmur2")
    keys = [b"%d" % number for number in range(10)]
    for key in keys:
        producer.produce(TOPIC, key, key)
    assert producer.flush(20) == 0
    for partition in (0, 1):
        assert brokers.values(partition) == [k for k in keys if partition_of(k, 2) == partition]


def test_an_outcome_is_reported_to_the_thread_that_polls(brokers: Brokers) -> None:
    producer = brokers.producer()
    producer.produce(TOPIC, b"a", None, 0, brokers.note)
    assert len(producer) == 1
    assert brokers.reported == []
    assert producer.poll(20) == 1
    assert (brokers.reported, len(producer)) == ([None], 0)


def test_purged_records_are_reported_and_later_ones_arrive(
    brokers: Brokers, wait_until: WaitUntil
) -> None:
    brokers.cluster.away = True
    producer = brokers.producer()
    producer.produce(TOPIC, b"dropped", None, 0, brokers.note)
    assert producer.flush(0.3) == 1
    producer.purge()
    assert producer.flush(20) == 0
    assert brokers.reported == [KafkaError._PURGE_QUEUE]
    brokers.cluster.away = False
    producer.produce(TOPIC, b"kept", None, 0, brokers.note)
    assert producer.flush(20) == 0
    assert brokers.values() == [b"kept"]


def test_records_of_a_topic_that_may_not_be_seen_are_refused(
    brokers: Brokers, serve: Serve
) -> None:
    broker = serve({})
    broker.script[METADATA] = lambda _: metadata_of(
        {1: broker.port}, {}, cluster_id="id-of-west", code=ErrorCode.topic_authorization_failed
    )
    servers = f"127.0.0.1:{broker.port}"
    access = brokers.wire.access
    spec = access.spec.model_copy(update={"bootstrap_servers": servers})
    producer = RecordProducer(replace(access, spec=spec))
    producer.produce(TOPIC, b"a", b"key", on_delivery=brokers.note)
    producer.produce(TOPIC, b"a", b"key", 0, on_delivery=brokers.note)
    assert producer.flush(20) == 0
    assert brokers.reported == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2


def test_nothing_is_sent_to_a_broker_of_another_cluster(
    brokers: Brokers, serve: Serve, wait_until: WaitUntil
) -> None:
    stranger = serve({})
    led = {0: (1, 0), 1: (1, 0)}
    stranger.script[METADATA] = lambda _: metadata_of(
        {1: stranger.port}, led, topic=TOPIC, cluster_id="another"
    )
    access = brokers.wire.access
    both = f"127.0.0.1:{stranger.port},{access.bootstrap_servers}"
    strangers = access.spec.model_copy(update={"bootstrap_servers": f"127.0.0.1:{stranger.port}"})
    known = replace(access, cluster_id="id-of-west")
    shut_out = RecordProducer(replace(known, spec=strangers))
    shut_out.produce(TOPIC, b"a", b"key", 0, brokers.note)
    wait_until(lambda: len(stranger.seen) > 2)
    assert (shut_out.flush(0), brokers.reported) == (1, [])
    assert PRODUCE not in {request.api_key for request in stranger.seen}
    shut_out.purge()

    spec = access.spec.model_copy(update={"bootstrap_servers": both})
    producer = RecordProducer(replace(known, spec=spec))
    producer.produce(TOPIC, b"b", b"key", 0)
    assert producer.flush(20) == 0
    assert brokers.values() == [b"b"]


def test_a_wait_ends_although_another_thread_takes_the_report() -> None:
    reports = DeliveryReports()
    waiting = threading.Thread(target=reports.take, args=(0.1,), daemon=True)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1.0)  # the other thread continues when this one waits, and not before
    try:
        waiting.start()
        time.sleep(0.05)
        reports.put(DeliveryReport(None, None))
        assert reports.take(0) is not None
        busy_until_s = time.monotonic() + 0.1
        while time.monotonic() < busy_until_s:
            pass
    finally:
        sys.setswitchinterval(interval_s)
    waiting.join(10)
    assert not waiting.is_alive()
