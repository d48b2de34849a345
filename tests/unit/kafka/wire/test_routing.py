"""Damaged requests and responses that name partitions and groups that were not requested."""

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as lists
from kio.schema.offset_fetch.v8 import response as fetched
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64
from support.fake_broker import (
    FIND_COORDINATOR,
    NOT_THROTTLED,
    FakeBroker,
    coordinated_by,
    in_turn,
    metadata_of,
)
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import Retriable
from headrace.kafka import Admin, Committed
from headrace.kafka.wire import LATEST, ClusterClient, EventLoop, list_offsets, start

LIST_OFFSETS, METADATA, OFFSET_FETCH = 2, 3, 9
AT = TopicPartition("orders", 0)


def listed(topic: str, code: ErrorCode) -> lists.ListOffsetsResponse:
    one = lists.ListOffsetsPartitionResponse(
        partition_index=i32(0),
        error_code=code,
        timestamp=i64(-1),
        offset=i64(42),
        leader_epoch=i32(3),
    )
    entry = lists.ListOffsetsTopicResponse(name=TopicName(topic), partitions=(one,))
    return lists.ListOffsetsResponse(throttle_time=NOT_THROTTLED, topics=(entry,))


def test_result_of_another_partition_is_ignored(loop: EventLoop, broker: FakeBroker) -> None:
    broker.script[METADATA] = lambda _: metadata_of({1: broker.port}, {0: (1, 0)})
    broker.script[LIST_OFFSETS] = in_turn(
        listed("ordess", ErrorCode.unknown_topic_or_partition),
        listed("ordess", ErrorCode.none),
        listed("orders", ErrorCode.none),
    )
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    cluster = ClusterClient(loop, ClusterAccess(spec))
    answers = loop.wait(start(list_offsets(cluster, [AT], LATEST)), WITHIN_S)
    cluster.close()

    assert answers.found.keys() == {AT}
    assert not answers.failed


def test_offsets_of_another_group_are_ignored(broker: FakeBroker, admin: Admin) -> None:
    groups = tuple(
        fetched.OffsetFetchResponseGroup(
            group_id=GroupId(name), topics=(), error_code=ErrorCode.none
        )
        for name in ("billing", "audis")
    )
    broker.script[OFFSET_FETCH] = lambda _: fetched.OffsetFetchResponse(
        throttle_time=NOT_THROTTLED, groups=groups
    )
    found, failed = admin.committed(["billing", "audit"])
    assert found == {"billing": {}}
    assert isinstance(failed["audit"], Retriable)


def test_coordinator_of_another_group_is_ignored(broker: FakeBroker, admin: Admin) -> None:
    broker.script[FIND_COORDINATOR] = lambda _: coordinated_by({"billinh": 1})
    offsets: Any = {"billing": {AT: Committed(5, "")}}
    failed = admin.commit(offsets)
    assert isinstance(failed["billing"], Retriable)
