"""Findings of a flow's check on brokers whose behaviour no broker of the tests has."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ConfigResource
from kio.schema.describe_configs.v4 import response as configs
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import response as fetched
from kio.schema.produce.v9 import response as produced
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32
from support.fake_broker import (
    NOT_THROTTLED,
    Request,
    acls_are_listed,
    metadata_of,
    served,
    serving,
)

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Fatal, Retriable
from headrace.kafka import Operation, Replicas, RightsAdmin, TopicRights

PRODUCE, FETCH, METADATA, API_VERSIONS, DESCRIBE_CONFIGS = 0, 1, 3, 18, 32


def test_a_broker_that_is_older_than_the_wire_client_speaks() -> None:
    with serving() as serve:
        old = serve({API_VERSIONS: lambda _: b"\0\x23\0\0\0\0"})
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{old.port}")
        with pytest.raises(Fatal, match=r"is too old; headrace needs brokers of Kafka 2\.4"):
            RightsAdmin(ClusterAccess(spec)).check_version()


def test_one_that_is_new_enough_is_not_complained_of() -> None:
    with serving() as serve:
        broker = serve({METADATA: lambda _: metadata_of({1: 9092}, {})})
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        RightsAdmin(ClusterAccess(spec)).check_version()


class Creating:
    """Client of a cluster on which another process has just created every requested topic."""

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, "Future[Any]"]:
        return {topic.topic: failed(KafkaError.TOPIC_ALREADY_EXISTS) for topic in topics}

    def create_partitions(self, topics: list[Any], **_: Any) -> dict[str, "Future[Any]"]:
        return {topic.topic: failed(KafkaError.UNKNOWN_TOPIC_OR_PART) for topic in topics}

    def incremental_alter_configs(
        self, topics: list[ConfigResource], **_: Any
    ) -> dict[ConfigResource, "Future[Any]"]:
        return {topic: failed(KafkaError.UNKNOWN_TOPIC_OR_PART) for topic in topics}

    def poll(self, _: float) -> int:
        return 0


def failed(code: int) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def unknown(request: Request) -> Any:
    """Answer a request for the settings of a topic, as long as the topic does not exist."""
    result = configs.DescribeConfigsResult(
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message=None,
        resource_type=i8(2),
        resource_name=request.message.resources[0].resource_name,
        configs=(),
    )
    return configs.DescribeConfigsResponse(throttle_time=NOT_THROTTLED, results=(result,))


def unread(_: Request) -> Any:
    return fetched.FetchResponse(
        throttle_time=NOT_THROTTLED, error_code=ErrorCode.none, session_id=i32(0), responses=()
    )


def unwritten(_: Request) -> Any:
    return produced.ProduceResponse(responses=(), throttle_time=NOT_THROTTLED)


def test_a_topic_that_is_made_while_it_is_asked_for_is_described_again() -> None:
    """Otherwise it would have no replica in sync, and no partition."""
    with serving() as serve:
        answers: Iterator[Any] = iter(())

        def metadata(request: Request) -> Any:
            # A new connection compares the cluster id, and names no topic.
            return next(answers) if request.message.topics else metadata_of({1: broker.port}, {})

        broker = serve(
            {
                API_VERSIONS: lambda _: served({FETCH: (12, 12)}),  # requests name topics
                METADATA: metadata,
                DESCRIBE_CONFIGS: unknown,
                FETCH: unread,
                PRODUCE: unwritten,
            }
        )
        led = dict.fromkeys(range(4), (1, 0))
        there = metadata_of({1: broker.port}, led, topic="copy")
        (topic,) = there.topics
        partitions = tuple(
            replace(one, replica_nodes=(BrokerId(1),), isr_nodes=(BrokerId(1),))
            for one in topic.partitions
        )
        there = replace(there, topics=(replace(topic, partitions=partitions),))
        absent = metadata_of(
            {1: broker.port}, {}, topic="copy", code=ErrorCode.unknown_topic_or_partition
        )
        answers = iter([absent, absent, there])
        client: Any = Creating()
        spec = ClusterSpec(alias="west", bootstrap_servers=f"127.0.0.1:{broker.port}")
        admin = RightsAdmin(ClusterAccess(spec), make_client=lambda _: client)
        described = TopicRights(frozenset(Operation), True, 4, Replicas(1, 1))
        assert admin.topic_rights({"copy"}, {}) == {"copy": described}
        assert next(answers, None) is None


@pytest.mark.parametrize(
    ("code", "operations", "allowed"),
    [
        (ErrorCode.cluster_authorization_failed, None, frozenset()),
        (ErrorCode.security_disabled, None, frozenset(Operation)),
        (ErrorCode.none, None, frozenset(Operation)),
        (ErrorCode.none, [AclOperation.DESCRIBE], {Operation.DESCRIBE}),
    ],
)
def test_no_right_at_all_on_the_cluster_is_not_taken_for_all(
    code: ErrorCode, operations: object, allowed: object
) -> None:
    class OfCluster:
        def describe_cluster(self, **_: Any) -> "Future[Any]":
            future: Future[Any] = Future()
            future.set_result(SimpleNamespace(authorized_operations=operations))
            return future

        def poll(self, _: float) -> int:
            return 0

    client: Any = OfCluster()
    with serving() as serve:
        broker = serve(acls_are_listed(code))
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        admin = RightsAdmin(ClusterAccess(spec), make_client=lambda _: client)
        assert admin.cluster_rights() == allowed


class Groups:
    """Client with a list of answers for each group."""

    def __init__(self, **answers: list[int]) -> None:
        """Set the error codes of each group. 0 stands for the permission to describe it."""
        self._answers = answers

    def describe_consumer_groups(self, names: list[str], **_: Any) -> dict[str, "Future[Any]"]:
        return {name: self._answer(self._answers[name]) for name in names}

    def poll(self, _: float) -> int:
        return 0

    def _answer(self, codes: list[int]) -> "Future[Any]":
        future: Future[Any] = Future()
        if code := codes.pop(0) if len(codes) > 1 else codes[0]:
            future.set_exception(KafkaException(KafkaError(code)))
        else:
            future.set_result(SimpleNamespace(authorized_operations=[AclOperation.DESCRIBE]))
        return future


def asked(groups: Groups) -> RightsAdmin:
    client: Any = groups
    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    return RightsAdmin(ClusterAccess(spec), timeout_s=0.3, make_client=lambda _: client)


def test_a_group_whose_coordinator_moves_is_asked_about_again() -> None:
    moving = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 0]
    admin = asked(Groups(a=moving, b=[KafkaError.GROUP_AUTHORIZATION_FAILED], c=[0]))
    described = frozenset({Operation.DESCRIBE})
    assert admin.group_rights(["a", "b", "c"]) == {"a": described, "b": frozenset(), "c": described}


def test_but_not_for_ever() -> None:
    admin = asked(Groups(a=[KafkaError.NOT_COORDINATOR]))
    with pytest.raises(Retriable, match="could not describe group a of east"):
        admin.group_rights(["a"])
