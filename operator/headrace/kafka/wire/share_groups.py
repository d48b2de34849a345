"""Share groups (KIP-932) at their coordinators: their start offsets, and whether they were used.

Brokers serve these requests since Kafka 4.1. librdkafka has none of them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.alter_share_group_offsets.v0.response import AlterShareGroupOffsetsResponse
from kio.schema.describe_share_group_offsets.v0.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v0.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.coordinators import Ask, Found, at_coordinators
from headrace.kafka.wire.errors import NoShareGroups, RefusedForGood, refusal
from headrace.kafka.wire.offsets import by_topic
from headrace.kafka.wire.protocol import SHARE_GROUP_KEYS, call

T = TypeVar("T")
_FIRST_ASSIGNMENT = 2
"""Assignment epoch of a group's first members. One that has had none has 1, or 0 before Kafka 4.3
(KAFKA-20268), where it is 1 of the first members: of these, only the start offset tells."""
_DELETED = {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}


async def share_starts(
    cluster: ClusterClient, groups: Iterable[str]
) -> Found[dict[TopicPartition, int]]:
    """Return the start offset of each partition that has one.

    Only topics that the principal may describe are included. The result is empty for a group that
    is absent or is no share group. Raise ``Unreachable``, ``AccessDenied``, ``NoShareGroups``.
    """

    async def ask(
        connection: Connection, those: Collection[str]
    ) -> Found[dict[TopicPartition, int]]:
        request = DescribeShareGroupOffsetsRequest(
            groups=tuple(
                DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(one), topics=None)
                for one in those
            )
        )
        response = await connection.send(call(request, DescribeShareGroupOffsetsResponse))
        return {one.group_id: _starts(cluster, one) for one in response.groups}

    return await _where_served(cluster, groups, ask)


async def set_share_starts(
    cluster: ClusterClient, starts: Mapping[str, Mapping[TopicPartition, int]]
) -> Found[None]:
    """Set start offsets; create absent groups (since Kafka 4.2).

    The result is ``GroupActive`` for a group with members. Raise as ``share_starts``.
    """

    async def ask(connection: Connection, those: Collection[str]) -> Found[None]:
        found: Found[None] = {}
        for group in those:
            request = _alter(group, starts[group])
            response = await connection.send(call(request, AlterShareGroupOffsetsResponse))
            found[group] = _not_set(cluster, group, response)
        return found

    return await _where_served(cluster, starts, ask)


async def used_share_groups(cluster: ClusterClient, groups: Iterable[str]) -> Found[bool]:
    """Whether a group has, or ever had, members. Raises as ``share_starts``."""

    async def ask(connection: Connection, those: Collection[str]) -> Found[bool]:
        request = ShareGroupDescribeRequest(
            group_ids=tuple(map(GroupId, those)), include_authorized_operations=False
        )
        response = await connection.send(call(request, ShareGroupDescribeResponse))
        tried = "describe share group {} of " + cluster.name
        return {
            one.group_id: False
            if one.error_code is ErrorCode.group_id_not_found
            else _error(cluster, one.error_code, tried.format(one.group_id))
            or bool(one.members)
            or one.assignment_epoch >= _FIRST_ASSIGNMENT
            for one in response.groups
        }

    return await _where_served(cluster, groups, ask)


def _starts(
    cluster: ClusterClient, group: DescribeShareGroupOffsetsResponseGroup
) -> dict[TopicPartition, int] | HeadraceError:
    tried = f"read the start offsets of share group {group.group_id} of {cluster.name}"
    if group.error_code is ErrorCode.group_id_not_found:
        return {}
    if error := _error(cluster, group.error_code, tried):
        return error
    found = {}
    for topic in group.topics:
        for one in topic.partitions:
            at = TopicPartition(topic.topic_name, one.partition_index)
            if one.error_code in _DELETED:
                continue
            if error := _error(cluster, one.error_code, f"{tried} for {at.topic}/{at.partition}"):
                return error
            if one.start_offset >= 0:
                found[at] = int(one.start_offset)
    return found


def _alter(group: str, starts: Mapping[TopicPartition, int]) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=GroupId(group),
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=TopicName(topic),
                partitions=tuple(
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=i32(at.partition), start_offset=i64(offset)
                    )
                    for at, offset in those
                ),
            )
            for topic, those in by_topic(list(starts.items()))
        ),
    )


def _not_set(
    cluster: ClusterClient, group: str, response: AlterShareGroupOffsetsResponse
) -> HeadraceError | None:
    tried = f"set the start offsets of share group {group} of {cluster.name}"
    if response.error_code is ErrorCode.group_id_not_found:
        why = "the group there is no share group; or it is absent, and Kafka older than 4.2"
        return RefusedForGood(f"could not {tried}: {why}", response.error_code)
    if error := _error(cluster, response.error_code, tried):
        return error
    for topic in response.responses:
        for one in topic.partitions:
            at = f"{topic.topic_name}/{one.partition_index}"
            if error := _error(cluster, one.error_code, f"{tried} for {at}"):
                return error
    return None


def _error(cluster: ClusterClient, code: ErrorCode, tried: str) -> HeadraceError | None:
    if code is ErrorCode.none:
        return None
    if code is ErrorCode.unsupported_version:
        return NoShareGroups(
            f"share groups are disabled on {cluster.name}: its feature share.version is 0"
        )
    return refusal(code, tried)


async def _where_served(cluster: ClusterClient, groups: Iterable[str], ask: Ask[T]) -> Found[T]:
    async def ask_if_served(connection: Connection, those: Collection[str]) -> Found[T]:
        if not all(map(connection.serves, SHARE_GROUP_KEYS)):
            raise NoShareGroups(
                f"{cluster.name} has no start offsets of share groups: they take Kafka 4.1 or newer"
            )
        return await ask(connection, those)

    return await at_coordinators(cluster, groups, ask_if_served)
