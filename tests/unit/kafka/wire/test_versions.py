"""The client's requests to a broker of Kafka 2.4, which serves older versions of most of them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3 import FindCoordinatorResponse
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.list_offsets.v7 import response as lists
from kio.schema.offset_fetch.v7 import response as committed
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import i16, i32, i32Timedelta, i64
from support.fake_broker import (
    END_TXN,
    FIND_COORDINATOR,
    NOT_THROTTLED,
    FakeBroker,
    Request,
    Serve,
    metadata_of,
    served,
)
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    Committed,
    EventLoop,
    ProducerIdentity,
    RequestRefused,
    Transactions,
    UnsupportedBroker,
    committed_offsets,
    describe_producers,
    list_offsets,
    start,
)
from headrace.kafka.wire.protocol import SPOKEN, converted

METADATA, LIST_OFFSETS, OFFSET_FETCH, INIT_PRODUCER_ID = 3, 2, 9, 22
KAFKA_2_4 = {key: (0, oldest) for key, (oldest, _) in SPOKEN.items()}
AT = TopicPartition("orders", 0)


@pytest.fixture
def broker(serve: Serve) -> FakeBroker:
    broker = serve({18: lambda _: served(KAFKA_2_4), FIND_COORDINATOR: coordinated_here})
    broker.script[METADATA] = lambda _: metadata_of({1: broker.port}, {0: (1, 3)})
    return broker


@pytest.fixture
def cluster(loop: EventLoop, broker: FakeBroker) -> ClusterClient:
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    return ClusterClient(loop, ClusterAccess(spec))


def coordinated_here(_: Request) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        error_message=None,
        node_id=BrokerId(1),
        host="127.0.0.1",
        port=i32(0),
    )


def test_topics_have_no_ids(loop: EventLoop, cluster: ClusterClient) -> None:
    view = loop.wait(start(cluster.refresh(["orders"])), WITHIN_S)

    assert view.topics["orders"].id is None
    led = view.leadership(AT)
    assert led is not None
    assert (led.leader, led.epoch) == (1, 3)


def test_a_field_that_only_old_brokers_fill_is_ignored(
    loop: EventLoop, cluster: ClusterClient, broker: FakeBroker
) -> None:
    def with_operations(request: Request) -> Any:
        schema: Any = load_response_schema(i16(METADATA), i16(request.version))
        answer = metadata_of({1: broker.port}, {0: (1, 3)})
        old = converted(answer, schema, without=["topic_id"])
        return replace(old, cluster_authorized_operations=i32(0))

    broker.script[METADATA] = with_operations

    view = loop.wait(start(cluster.refresh(["orders"])), WITHIN_S)

    assert view.leadership(AT) is not None


def test_a_leadership_of_a_topic_without_an_id_may_fall_back(
    loop: EventLoop, cluster: ClusterClient, broker: FakeBroker
) -> None:
    loop.wait(start(cluster.refresh(["orders"])), WITHIN_S)
    broker.script[METADATA] = lambda _: metadata_of({1: broker.port}, {0: (1, 0)})

    view = loop.wait(start(cluster.refresh(["orders"])), WITHIN_S)

    led = view.leadership(AT)
    assert led is not None
    assert led.epoch == 0, "it was created again"


def test_offsets_are_listed(loop: EventLoop, cluster: ClusterClient, broker: FakeBroker) -> None:
    one = lists.ListOffsetsPartitionResponse(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        timestamp=i64(-1),
        offset=i64(42),
        leader_epoch=i32(3),
    )
    topic = lists.ListOffsetsTopicResponse(name=TopicName("orders"), partitions=(one,))
    answer = lists.ListOffsetsResponse(throttle_time=NOT_THROTTLED, topics=(topic,))
    broker.script[LIST_OFFSETS] = lambda _: answer

    found = loop.wait(start(list_offsets(cluster, [AT], LATEST)), WITHIN_S).all()

    assert found[AT].offset == 42
    assert broker.seen[-1].version == 5


def test_each_group_is_asked_for_alone(
    loop: EventLoop, cluster: ClusterClient, broker: FakeBroker
) -> None:
    offsets = {"a": 5, "b": 7}

    def answer(request: Request) -> committed.OffsetFetchResponse:
        one = committed.OffsetFetchResponsePartition(
            partition_index=i32(0),
            committed_offset=i64(offsets[request.message.group_id]),
            metadata="",
            error_code=ErrorCode.none,
        )
        topic = committed.OffsetFetchResponseTopic(name=TopicName("orders"), partitions=(one,))
        return committed.OffsetFetchResponse(
            throttle_time=NOT_THROTTLED, topics=(topic,), error_code=ErrorCode.none
        )

    broker.script[OFFSET_FETCH] = answer

    found = loop.wait(start(committed_offsets(cluster, offsets)), WITHIN_S)

    assert found == {group: {AT: Committed(offset, "")} for group, offset in offsets.items()}
    keys = {request.key for request in broker.requests(FIND_COORDINATOR)}
    assert keys == set(offsets)


def identity(producer_id: int, epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )


def test_a_renewal_that_an_old_coordinator_cannot_compare_is_compared_here(
    loop: EventLoop, cluster: ClusterClient, broker: FakeBroker
) -> None:
    transactions = Transactions(cluster, "task")
    known = ProducerIdentity(7, 3)
    broker.script[INIT_PRODUCER_ID] = lambda _: identity(7, 4)
    renewed = loop.wait(start(transactions.init_producer_id(current=known)), WITHIN_S)
    assert (renewed.producer_id, renewed.epoch) == (7, 4)

    broker.script[INIT_PRODUCER_ID] = lambda _: identity(7, 5)
    with pytest.raises(RequestRefused) as refused:
        loop.wait(start(transactions.init_producer_id(current=known)), WITHIN_S)
    assert refused.value.code is ErrorCode.producer_fenced


def test_what_needs_a_newer_broker_names_it(loop: EventLoop, serve: Serve) -> None:
    answer = served({61: (5, 6)} | {END_TXN: (0, 1)})
    broker = serve({18: lambda _: answer})
    broker.script[METADATA] = lambda _: metadata_of({1: broker.port}, {0: (1, 3)})
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    cluster = ClusterClient(loop, ClusterAccess(spec))

    with pytest.raises(UnsupportedBroker, match=rf"{broker.port} serves describe_producers in"):
        loop.wait(start(describe_producers(cluster, [AT])), WITHIN_S)
