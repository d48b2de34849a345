"""What groups have committed, read at their coordinators.

librdkafka's admin client ends the process, by a segmentation fault or an assertion, when a
coordinator that it asks has moved or is loading (librdkafka issue 3663); and it takes a request for
each group.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse, OffsetFetchResponseGroup
from kio.schema.types import GroupId

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire.cluster import Cluster
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.coordinators import Found, at_coordinators
from headrace.kafka.wire.errors import refusal
from headrace.kafka.wire.protocol import call

_WITHIN_S = 5.0
_AT_ONCE = 200
"""Groups in a request: each may have thousands of partitions."""


class Committed(NamedTuple):
    """What a consumer group has committed for a partition."""

    offset: int
    metadata: str


Offsets = dict[TopicPartition, Committed]


async def committed_offsets(cluster: Cluster, groups: Iterable[str]) -> Found[Offsets]:
    """Of each topic that the principal may describe; empty for a group that is absent. Raises
    ``Unreachable``, ``AccessDenied``."""

    async def ask(connection: Connection, those: Collection[str]) -> Found[Offsets]:
        left, found = list(those), dict[str, Offsets | HeadraceError]()
        while left:
            asked, left = left[:_AT_ONCE], left[_AT_ONCE:]
            request = OffsetFetchRequest(
                groups=tuple(
                    OffsetFetchRequestGroup(group_id=GroupId(one), topics=None) for one in asked
                )
            )
            response = await connection.send(
                call(request, OffsetFetchResponse), timeout_s=_WITHIN_S
            )
            found |= {one.group_id: _offsets(cluster, one) for one in response.groups}
        return found

    return await at_coordinators(cluster, groups, ask)


def _offsets(cluster: Cluster, group: OffsetFetchResponseGroup) -> Offsets | HeadraceError:
    if group.error_code is ErrorCode.group_id_not_found:
        return {}
    if group.error_code is not ErrorCode.none:
        tried = f"read the committed offsets of group {group.group_id} of {cluster.name}"
        return refusal(group.error_code, tried)
    return {
        TopicPartition(topic.name, one.partition_index): Committed(
            int(one.committed_offset), one.metadata or ""
        )
        for topic in group.topics
        for one in topic.partitions
        if one.error_code is ErrorCode.none and one.committed_offset >= 0
    }
