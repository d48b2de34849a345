"""Describes topics, and deletes topics by id.

librdkafka cannot delete by id. Version 2.16.0 can describe topics, but ends the process (SIGSEGV)
if a response names a topic that was not requested, for example because one bit was flipped.
"""

from collections.abc import Collection, Container, Mapping
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from kio.schema.delete_topics.v6 import DeleteTopicsRequest, DeleteTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicState
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import MetadataResponseTopic
from kio.static.primitive import i32Timedelta

from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire.cluster import ClusterClient, Leadership, metadata_call
from headrace.kafka.wire.errors import RefusedForGood, refusal
from headrace.kafka.wire.protocol import DELETE_TOPICS, call

_NOT_REPORTED = -(2**31)
"""Value of the operations' bits if the broker did not report the operations."""
_DELETED_S = 20
"""Time for the controller to delete the topics, in seconds. Each deletion is one log record."""


class DescribedTopic(NamedTuple):
    """A topic of a cluster."""

    id: UUID | None
    """None before Kafka 2.8."""
    partitions: Mapping[int, Leadership]
    leaderless: frozenset[int]
    """Numbers of the partitions without a live leader."""
    operations: int | None
    """Bits of the operations that the principal may perform. None if the broker did not report
    them."""


async def describe_topics(
    cluster: ClusterClient, names: Collection[str], *, operations: bool = False
) -> dict[str, DescribedTopic | HeadraceError]:
    """Return each topic, or the broker's error. Topics are not created.

    Args:
        cluster: Client of the cluster.
        names: Names of the topics.
        operations: Whether the operations that the principal may perform are requested.

    Raises:
        Retriable: The response lacks a topic or a partition, so it was damaged. No broker answers.
    """
    connection = await cluster.any_connection()
    response = await connection.send(metadata_call(sorted(names), operations=operations))
    live = {broker.node_id for broker in response.brokers}
    reported: dict[str, list[MetadataResponseTopic]] = {}
    for topic in response.topics:
        reported.setdefault(topic.name or "", []).append(topic)
    found: dict[str, DescribedTopic | HeadraceError] = {}
    for name in names:
        entries = reported.get(name, ())
        if len(entries) != 1 or not _is_complete(entries[0]):
            raise Retriable(
                f"could not describe topic {name} of {cluster.name}: the broker's answer was "
                "damaged, because it lacks the topic or one of its partitions"
            )
        code = entries[0].error_code
        found[name] = (
            _described(entries[0], live)
            if code is ErrorCode.none
            else refusal(code, f"describe topic {name} of {cluster.name}")
        )
    return found


def _is_complete(topic: MetadataResponseTopic) -> bool:
    """Return whether a topic has each partition from 0 on once."""
    numbers = sorted(one.partition_index for one in topic.partitions)
    return numbers == list(range(len(numbers)))


def _described(topic: MetadataResponseTopic, live: Container[int]) -> DescribedTopic:
    operations = int(topic.topic_authorized_operations)
    return DescribedTopic(
        topic.topic_id,
        {
            one.partition_index: Leadership(
                one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes
            )
            for one in topic.partitions
        },
        frozenset(one.partition_index for one in topic.partitions if one.leader_id not in live),
        None if operations == _NOT_REPORTED else operations,
    )


async def delete_topics(
    cluster: ClusterClient, ids: Collection[UUID]
) -> dict[UUID, HeadraceError | None]:
    """Delete topics, and return None or an error for each id.

    A topic that was created again with the same name has another id and is not deleted. An id that
    does not exist counts as deleted. Any broker forwards the request to the controller. Requires
    Kafka 2.8.
    """
    connection = await cluster.any_connection()
    if not connection.serves(DELETE_TOPICS):
        why = f"{cluster.name} cannot delete topics by their ids: that takes Kafka 2.8 or newer"
        return dict.fromkeys(ids, RefusedForGood(why, ErrorCode.unsupported_version))
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=None, topic_id=one) for one in ids),
        timeout=i32Timedelta.parse(timedelta(seconds=_DELETED_S)),
    )
    response = await connection.send(call(request, DeleteTopicsResponse))
    found: dict[UUID, HeadraceError | None] = {}
    for one in response.responses:
        if one.topic_id is not None:
            done = one.error_code in (ErrorCode.none, ErrorCode.unknown_topic_id)
            tried = f"delete topic {one.name or one.topic_id} on {cluster.name}"
            found[one.topic_id] = None if done else refusal(one.error_code, tried)
    return found
