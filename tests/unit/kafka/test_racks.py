"""Racks in which partitions can be read, according to brokers' answers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.describe_configs.v4 import response as configs
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i8
from support.fake_broker import NOT_THROTTLED, Serve, metadata_of, serving

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.kafka import Admin

METADATA, DESCRIBE_CONFIGS = 3, 32
AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"
REPLICAS = {0: (1, 2), 1: (3,)}


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as serve:
        yield serve


def settings(selector: str | None, code: ErrorCode) -> Any:
    entry = configs.DescribeConfigsResourceResult(
        name="replica.selector.class",
        value=selector,
        read_only=True,
        is_sensitive=False,
        synonyms=(),
        documentation=None,
    )
    result = configs.DescribeConfigsResult(
        error_code=code,
        error_message=None,
        resource_type=i8(4),
        resource_name="1",
        configs=(entry,),
    )
    return configs.DescribeConfigsResponse(throttle_time=NOT_THROTTLED, results=(result,))


def racks(
    serve: Serve, selector: str | None, racks: str = "abc", code: ErrorCode = ErrorCode.none
) -> list[set[str]]:
    """Return the racks of both partitions. One partition's leader is not its preferred leader."""
    broker = serve({DESCRIBE_CONFIGS: lambda _: settings(selector, code)})

    def metadata(_: Any) -> Any:
        found = metadata_of(dict.fromkeys((1, 2, 3), broker.port), {0: (2, 1), 1: (-1, 1)})
        known = dict(enumerate(racks, 1))
        (topic,) = found.topics
        partitions = tuple(
            replace(one, replica_nodes=tuple(map(BrokerId, REPLICAS[one.partition_index])))
            for one in topic.partitions
        )
        return replace(
            found,
            brokers=tuple(replace(one, rack=known.get(one.node_id)) for one in found.brokers),
            topics=(replace(topic, partitions=partitions),),
        )

    broker.script[METADATA] = metadata
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    read = Admin(ClusterAccess(spec)).racks({"orders", "gone"})
    assert not read or read.keys() == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    return [set(one) for _, one in sorted(read.items())]


def test_with_follower_fetching_those_of_all_replicas(serve: Serve) -> None:
    assert racks(serve, AWARE) == [{"a", "b"}, {"c"}]


@pytest.mark.parametrize("selector", [None, "", LEADER])
def test_else_that_of_the_preferred_leader_whoever_leads_now(
    serve: Serve, selector: str | None
) -> None:
    assert racks(serve, selector) == [{"a"}, {"c"}]


def test_so_where_the_setting_may_not_be_read(serve: Serve) -> None:
    refused = ErrorCode.cluster_authorization_failed
    assert racks(serve, AWARE, code=refused) == [{"a"}, {"c"}]


def test_brokers_without_racks(serve: Serve) -> None:
    assert racks(serve, AWARE, racks="") == []
    assert racks(serve, AWARE, racks="a") == [{"a"}, set()], "one broker alone has one"
