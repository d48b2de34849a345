"""Offsets of partitions, which an admin client reads over kept connections."""

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as lists
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64
from support.fake_broker import (
    NOT_THROTTLED,
    FakeBroker,
    Raw,
    Serve,
    Silence,
    in_turn,
    metadata_of,
)

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Admin, AdminTimings, Position
from headrace.kafka.wire import ClusterClient
from headrace.sandbox.processes import held_ports

LIST_OFFSETS, METADATA = 2, 3
AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MOVED = ErrorCode.not_leader_or_follower


def listed(
    offset: int, code: ErrorCode = ErrorCode.none, partitions: int = 1
) -> lists.ListOffsetsResponse:
    those = tuple(
        lists.ListOffsetsPartitionResponse(
            partition_index=i32(partition),
            error_code=code,
            timestamp=i64(-1),
            offset=i64(offset),
            leader_epoch=i32(3),
        )
        for partition in range(partitions)
    )
    entry = lists.ListOffsetsTopicResponse(name=TopicName("orders"), partitions=those)
    return lists.ListOffsetsResponse(throttle_time=NOT_THROTTLED, topics=(entry,))


@pytest.fixture
def leader(broker: FakeBroker) -> FakeBroker:
    """Return a broker that leads the partition."""
    broker.script[METADATA] = lambda _: metadata_of({1: broker.port}, {0: (1, 3), 1: (1, 3)})
    return broker


def admin_of(broker: FakeBroker, timeout_s: float = 30, **more: Any) -> Admin:
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    return Admin(ClusterAccess(spec), timeout_s=timeout_s, **more)


def test_connection_and_leaders_are_kept(leader: FakeBroker) -> None:
    leader.script[LIST_OFFSETS] = lambda _: listed(42)
    east = admin_of(leader)
    assert [east.known_ends([AT]) for _ in range(3)] == [{AT: 42}] * 3
    assert leader.connections == 1
    before = len(leader.requests(METADATA))
    assert east.offsets([AT], Position.EARLIEST) == {AT: 42}
    assert len(leader.requests(METADATA)) == before


def test_connection_that_was_closed_is_not_used(leader: FakeBroker) -> None:
    leader.script[LIST_OFFSETS] = lambda _: listed(42)
    east = admin_of(leader)
    assert east.known_ends([AT]) == {AT: 42}
    leader.drop()
    assert east.offsets([AT], Position.LATEST) == {AT: 42}
    assert leader.connections == 2


def test_connections_are_closed_with_the_admin_client(
    leader: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[ClusterClient] = []

    def close(cluster: ClusterClient) -> None:
        closed.append(cluster)
        really_close(cluster)

    really_close = ClusterClient.close
    monkeypatch.setattr(ClusterClient, "close", close)
    leader.script[LIST_OFFSETS] = lambda _: listed(42)
    east = admin_of(leader)
    east.known_ends([AT])
    assert not closed
    del east
    gc.collect()
    assert len(closed) == 1


def test_threads_do_not_wait_for_each_other(leader: FakeBroker) -> None:
    with ThreadPoolExecutor(2) as threads:
        east = admin_of(leader)
        inner: list[dict[TopicPartition, int]] = []

        def answer(_: Any) -> lists.ListOffsetsResponse:
            leader.script[LIST_OFFSETS] = lambda _: listed(43)
            inner.append(threads.submit(east.known_ends, [AT]).result(30))
            return listed(42)

        leader.script[LIST_OFFSETS] = answer
        assert threads.submit(east.known_ends, [AT]).result(60) == {AT: 42}
    assert inner == [{AT: 43}]


@pytest.mark.parametrize("position", list(Position))
def test_leader_that_moved_is_found(leader: FakeBroker, position: Position) -> None:
    leader.script[LIST_OFFSETS] = in_turn(listed(-1, MOVED), listed(-1, MOVED), listed(42))
    assert admin_of(leader).offsets([AT], position) == {AT: 42}


@pytest.mark.parametrize("dead", [False, True])
def test_a_former_leader_is_not_asked_again(leader: FakeBroker, serve: Serve, dead: bool) -> None:
    def refuse(_: Any) -> Any:
        led[0] = (2, 4)
        return Raw(b"", close=True) if dead else listed(-1, MOVED)

    led, other = {0: (1, 3)}, serve({LIST_OFFSETS: lambda _: listed(42)})
    leader.script[LIST_OFFSETS] = refuse
    for broker in (leader, other):
        broker.script[METADATA] = lambda _: metadata_of({1: leader.port, 2: other.port}, led)
    east = admin_of(leader)
    assert east.known_ends([AT]) == {}
    assert east.known_ends([AT]) == {AT: 42}
    assert len(leader.requests(LIST_OFFSETS)) == 1


def test_ends_are_requested_once(leader: FakeBroker) -> None:
    leader.script[LIST_OFFSETS] = in_turn(listed(-1, MOVED), listed(42))
    east = admin_of(leader)
    assert east.known_ends([AT]) == {}
    assert east.known_ends([AT]) == {AT: 42}


def test_damaged_answer_is_requested_again(leader: FakeBroker) -> None:
    leader.script[LIST_OFFSETS] = in_turn(Raw(b"\x00\x00\x00\x04\xff\xff\xff\xff"), listed(42))
    east = admin_of(leader)
    assert east.known_ends([AT]) == {}
    assert east.known_ends([AT]) == {AT: 42}


def test_partition_that_a_damaged_answer_lacks_is_requested_again(leader: FakeBroker) -> None:
    """The client of librdkafka would end the process."""
    leader.script[LIST_OFFSETS] = in_turn(listed(42), listed(42), listed(42, partitions=2))
    east = admin_of(leader)
    assert east.known_ends([AT, OTHER]) == {AT: 42}
    assert east.offsets([AT, OTHER], Position.LATEST) == {AT: 42, OTHER: 42}


def test_no_record_at_a_time_is_an_answer(leader: FakeBroker) -> None:
    leader.script[LIST_OFFSETS] = lambda _: listed(-1)
    assert admin_of(leader).offsets_at([AT], 0) == {AT: -1}


def test_leader_without_a_response_is_named(leader: FakeBroker) -> None:
    leader.script[LIST_OFFSETS] = lambda _: Silence()
    with pytest.raises(
        Retriable, match=r"read latest offsets of orders-0 on east .*broker 1 \(127"
    ):
        admin_of(leader, timeout_s=0.5).offsets([AT], Position.LATEST)


def test_a_wait_that_ends_before_the_request_does_is_tried_again(leader: FakeBroker) -> None:
    """The time of a driver that was frozen is over before the client looks at its answers."""
    leader.script[LIST_OFFSETS] = lambda _: Silence()
    east = admin_of(leader, timeout_s=30, timings=AdminTimings(grace_s=-29))
    assert east.known_ends([AT]) == {}
    leader.script[LIST_OFFSETS] = lambda _: listed(42)
    assert east.offsets([AT], Position.LATEST) == {AT: 42}


def test_advertised_address_that_cannot_be_reached_is_named(broker: FakeBroker) -> None:
    with held_ports([None]) as (closed,):
        brokers = {1: broker.port, 2: closed}
        broker.script[METADATA] = lambda _: metadata_of(brokers, {0: (2, 3)})
        with pytest.raises(
            Retriable, match=f"broker 2 advertises 127.0.0.1:{closed}, which cannot"
        ):
            admin_of(broker, timeout_s=0.5).offsets([AT], Position.LATEST)


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (ErrorCode.topic_authorization_failed, Fatal, "grant the principal permissions on this"),
        (ErrorCode.unknown_topic_or_partition, Retriable, "UNKNOWN_TOPIC_OR_PART"),
        (ErrorCode.none, Retriable, "LEADER_NOT_AVAILABLE"),
    ],
)
def test_reason_why_a_partition_has_no_leader_is_named(
    broker: FakeBroker, code: ErrorCode, kind: type[HeadraceError], sentence: str
) -> None:
    broker.script[METADATA] = lambda _: metadata_of({1: broker.port}, {}, code=code)
    with pytest.raises(kind, match=f"read earliest offsets of orders-0 on east .*{sentence}"):
        admin_of(broker, timeout_s=0.5).offsets([AT], Position.EARLIEST)
