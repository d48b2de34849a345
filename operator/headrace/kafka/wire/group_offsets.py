"""Committed offsets of groups, read and set at their coordinators.

librdkafka's admin client ends the process, by a segmentation fault or an assertion, if a
coordinator has moved or is loading (librdkafka issue 3663). It gives up setting offsets at a
coordinator that has moved, and it needs a request for each group.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7 import OffsetFetchRequest as FetchOneRequest
from kio.schema.offset_fetch.v7 import OffsetFetchResponse as FetchOneResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse, OffsetFetchResponseGroup
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.coordinators import WITHIN_S, Found, at_coordinators
from headrace.kafka.wire.errors import refusal
from headrace.kafka.wire.offsets import by_topic
from headrace.kafka.wire.protocol import OFFSET_FETCH, call

_SEVERAL_AT_ONCE = 8
"""Since this version a request names several groups."""
_AT_ONCE = 200
"""Groups in a request: each may have thousands of partitions."""


class Committed(NamedTuple):
    """Offset that a consumer group has committed for a partition."""

    offset: int
    metadata: str
    leader_epoch: int = -1
    """Leader epoch of the last record that was read, as consumers commit it; -1 without one."""


Offsets = dict[TopicPartition, Committed]


async def committed_offsets(cluster: ClusterClient, groups: Iterable[str]) -> Found[Offsets]:
    """Return the offsets of each topic that the principal may describe.

    They are empty for a group that is absent. Raise ``Unreachable``, ``AccessDenied``.
    """

    async def ask(connection: Connection, those: Collection[str]) -> Found[Offsets]:
        left, found = list(those), dict[str, Offsets | HeadraceError]()
        if connection.version(OFFSET_FETCH) < _SEVERAL_AT_ONCE:
            asked_for = {
                group: connection.send(
                    call(FetchOneRequest(group_id=GroupId(group), topics=None), FetchOneResponse),
                    timeout_s=WITHIN_S,
                )
                for group in left
            }
            return {
                group: _offsets(cluster, group, await reply) for group, reply in asked_for.items()
            }
        while left:
            asked, left = left[:_AT_ONCE], left[_AT_ONCE:]
            request = OffsetFetchRequest(
                groups=tuple(
                    OffsetFetchRequestGroup(group_id=GroupId(one), topics=None) for one in asked
                )
            )
            response = await connection.send(call(request, OffsetFetchResponse), timeout_s=WITHIN_S)
            found |= {one.group_id: _offsets(cluster, one.group_id, one) for one in response.groups}
        return found

    return await at_coordinators(cluster, groups, ask)


async def set_committed_offsets(
    cluster: ClusterClient, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
) -> Found[None]:
    """Commit offsets as a consumer that is not a member does; create absent groups.

    The result is ``GroupActive`` for a group with members. Raise as ``committed_offsets``.
    """

    async def ask(connection: Connection, those: Collection[str]) -> Found[None]:
        asked = {}
        for group in those:
            request = call(_commit(group, offsets[group]), OffsetCommitResponse)
            asked[group] = connection.send(request, timeout_s=WITHIN_S)
        found: Found[None] = {}
        for group, reply in asked.items():
            try:
                found[group] = _not_set(cluster, group, await reply)
            except Retriable as error:
                found[group] = error
        return found

    return await at_coordinators(cluster, offsets, ask)


def _offsets(
    cluster: ClusterClient, group: str, answer: OffsetFetchResponseGroup | FetchOneResponse
) -> Offsets | HeadraceError:
    if answer.error_code is ErrorCode.group_id_not_found:
        return {}
    if answer.error_code is not ErrorCode.none:
        tried = f"read the committed offsets of group {group} of {cluster.name}"
        return refusal(answer.error_code, tried)
    return {
        TopicPartition(topic.name, one.partition_index): Committed(
            int(one.committed_offset), one.metadata or "", int(one.committed_leader_epoch)
        )
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code is ErrorCode.none and one.committed_offset >= 0
    }


def _commit(group: str, offsets: Mapping[TopicPartition, Committed]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GroupId(group),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=i32(at.partition),
                        committed_offset=i64(one.offset),
                        committed_metadata=one.metadata,
                    )
                    for at, one in those
                ),
            )
            for topic, those in by_topic(list(offsets.items()))
        ),
    )


def _not_set(
    cluster: ClusterClient, group: str, response: OffsetCommitResponse
) -> HeadraceError | None:
    tried = f"set the committed offsets of group {group} of {cluster.name}"
    for topic in response.topics:
        for one in topic.partitions:
            if one.error_code is not ErrorCode.none:
                return refusal(one.error_code, f"{tried} for {topic.name}/{one.partition_index}")
    return None
