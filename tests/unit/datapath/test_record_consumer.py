"""Consumer of single records on connections whose cluster id is compared."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.fake_broker import Serve, metadata_of, serving
from support.fake_kafka import FakeClock, FakeKafka, FakeRecord
from support.patience import WITHIN_S
from support.wire_kafka import FETCH, METADATA, TOPIC, WireCluster, wire_cluster

from headrace.api import TopicPartition
from headrace.datapath import ReadRecord, RecordConsumer
from headrace.kafka import (
    SMALL_FETCH_BYTES,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    Throttle,
    assign,
    unassign,
)

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as serve:
        yield serve


def read_until_ends(consumer: RecordConsumer, ends: int) -> list[ReadRecord]:
    """Return the records up to that number of ends of partitions."""
    found: list[ReadRecord] = []
    deadline_s = time.monotonic() + 20
    while ends and time.monotonic() < deadline_s:
        for one in consumer.consume(100, 0.2):
            if (error := one.error()) is None:
                found.append(one)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ends -= 1
    assert not ends
    return found


def test_records_are_read_from_their_offsets_on_until_the_end_and_later(serve: Serve) -> None:
    cluster = FakeKafka("west").clusters["west"]
    cluster.create_topic(TOPIC, 2)
    wire = WireCluster(serve, cluster, TOPIC, 2)
    for number in range(5):
        cluster.write(P0, FakeRecord(None, b"%d" % number, 0))
    cluster.write(P1, FakeRecord(None, b"other", 0))
    consumer = RecordConsumer(replace(wire.access, cluster_id="id-of-west"))
    assign(consumer, [(P0, 2), (P1, 0)])

    found = read_until_ends(consumer, 2)
    assert {(one.partition(), one.offset(), one.value()) for one in found} == {
        (0, 2, b"2"),
        (0, 3, b"3"),
        (0, 4, b"4"),
        (1, 0, b"other"),
    }
    cluster.write(P0, FakeRecord(None, b"later", 0))
    (later,) = read_until_ends(consumer, 1)
    assert (later.offset(), later.value()) == (5, b"later")
    consumer.close()


def test_a_damaged_batch_is_an_error_and_nothing_after_it_is_read(serve: Serve) -> None:
    cluster = wire_cluster(serve, "west")
    cluster.append(b"before")
    cluster.append(b"damaged")
    cluster.append(b"after")
    batch = cluster.logs[0].batches[1]
    cluster.logs[0].batches[1] = batch[:-1] + bytes((batch[-1] ^ 1,))
    consumer = RecordConsumer(cluster.access)
    assign(consumer, [(P0, 0)])
    found: list[ReadRecord] = []
    deadline_s = time.monotonic() + WITHIN_S
    while sum(one.error() is not None for one in found) < 3:
        assert time.monotonic() < deadline_s, found
        found += consumer.consume(100, 0.2)
    consumer.close()
    assert [one.value() for one in found if one.error() is None] == [b"before"]
    errors = {(error.code(), one.offset()) for one in found if (error := one.error())}
    assert errors == {(KafkaError._BAD_MSG, 1)}


def test_throttled_consumer_waits_and_requests_less_at_a_time(serve: Serve) -> None:
    source, throttle = wire_cluster(serve, "east"), Throttle(FakeClock())
    source.append(b"a")
    source.delays_s = [0.3]
    consumer = RecordConsumer(source.access, throttle=throttle)
    assign(consumer, [(P0, 0)])

    (found,) = read_until_ends(consumer, 1)
    assert found.value() == b"a"
    assert throttle.active
    assert [one.max_bytes for _, one in source.fetches][:2] == [50 << 20, SMALL_FETCH_BYTES]
    consumer.close()


def test_partition_that_was_unassigned_is_read_no_more(serve: Serve) -> None:
    source = wire_cluster(serve, "east", 2)
    source.append(b"a")
    consumer = RecordConsumer(source.access)
    assign(consumer, [(P0, 0), (P1, 0)])
    read_until_ends(consumer, 2)

    unassign(consumer, [P0])
    source.append(b"b")
    source.append(b"c", partition=1, attributes=0x08)
    (found,) = read_until_ends(consumer, 1)
    assert (found.topic(), found.partition(), found.value()) == (TOPIC, 1, b"c")
    assert found.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
    consumer.close()


def test_nothing_of_another_cluster_is_read(serve: Serve) -> None:
    stranger = serve({})
    stranger.script[METADATA] = lambda _: metadata_of(
        {1: stranger.port}, {0: (1, 0)}, topic=TOPIC, cluster_id="another"
    )
    cluster = FakeKafka("west").clusters["west"]
    wire = WireCluster(serve, cluster, TOPIC, 1)
    access = wire.access
    spec = access.spec.model_copy(update={"bootstrap_servers": f"127.0.0.1:{stranger.port}"})
    consumer = RecordConsumer(replace(access, spec=spec, cluster_id="id-of-west"))
    assign(consumer, [(P0, 0)])
    assert consumer.consume(1, 0.5) == []
    assert {request.api_key for request in stranger.seen} == {METADATA}
    assert FETCH not in {request.api_key for request in stranger.seen}
    consumer.close()
