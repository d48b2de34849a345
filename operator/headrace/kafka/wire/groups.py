"""Types, committed offsets and start offsets of consumer groups and share groups (KIP-932)."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

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
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
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
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.errors import NoShareGroups, RefusedForGood, check, refusal
from headrace.kafka.wire.offsets import by_topic
from headrace.kafka.wire.protocol import OFFSET_FETCH, SHARE_GROUP_KEYS, call
from headrace.kafka.wire.routing import WITHIN_S, Ask, Found, at_coordinators
from headrace.logs import get_logger

log = get_logger(__name__)

_WITHOUT_MEMBERS = {"Empty", "Dead"}
"""Names of the states in which a group has no members, whatever its type."""


class GroupListing(NamedTuple):
    """Entry of a group in its coordinator's list."""

    protocol_type: str
    """``consumer``, ``share``, ``streams`` or ``connect``. Empty if the group has only offsets."""
    state: str
    """Name of the state, for example ``Stable`` or ``Reconciling``. Empty before Kafka 2.6."""

    @property
    def has_members(self) -> bool | None:
        """Whether the state of the group implies members. None if the broker listed no state."""
        return self.state not in _WITHOUT_MEMBERS if self.state else None


async def list_groups(cluster: ClusterClient) -> dict[str, GroupListing]:
    """Return the groups that the principal may describe.

    Each broker lists the groups that it coordinates. Raise ``RequestRefused`` or ``Unreachable``.
    """
    found: dict[str, GroupListing] = {}
    view = await cluster.refresh()
    for node in view.brokers:
        connection = await cluster.connection(node)
        response = await connection.send(call(ListGroupsRequest(), ListGroupsResponse))
        check(response.error_code, f"list the groups of {cluster.name}")
        found |= {
            one.group_id: GroupListing(one.protocol_type, one.group_state)
            for one in response.groups
        }
    return found


# Reading and setting of committed offsets, at the groups' coordinators.
# librdkafka's admin client crashes the process, by a segmentation fault or an assertion, if a
# coordinator has moved or is loading (librdkafka issue 3663). It does not retry setting offsets at
# a coordinator that has moved, and it needs a request for each group.

_FIRST_BATCHED_VERSION = 8
"""First version of OffsetFetch in which a request can name several groups."""
_MAX_GROUPS_PER_REQUEST = 200
"""Maximum number of groups in a request. Each may have thousands of partitions."""


class Committed(NamedTuple):
    """Offset that a consumer group has committed for a partition."""

    offset: int
    metadata: str
    leader_epoch: int = -1
    """Leader epoch of the last record that was read, or -1 if the consumer committed none."""


Offsets = dict[TopicPartition, Committed]


async def committed_offsets(cluster: ClusterClient, groups: Iterable[str]) -> Found[Offsets]:
    """Return the committed offsets of each group, or an error.

    Only topics that the principal may describe are included. A group that does not exist has no
    offsets. Raise ``Unreachable`` or ``AccessDenied``.
    """

    async def ask(connection: Connection, those: Collection[str]) -> Found[Offsets]:
        left, found = list(those), dict[str, Offsets | HeadraceError]()
        if connection.version(OFFSET_FETCH) < _FIRST_BATCHED_VERSION:
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
            asked, left = left[:_MAX_GROUPS_PER_REQUEST], left[_MAX_GROUPS_PER_REQUEST:]
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
    """Commit offsets like a consumer with manual assignment. Groups that do not exist are created.

    No checksum covers a request. The offsets are therefore read after they were set. Offsets that
    differ are set again, unless a consumer has committed them.

    The result of each group is None or an error. It is ``GroupActive`` for a group with members.
    Raise ``Unreachable`` or ``AccessDenied``.
    """
    found = await _set_offsets(cluster, offsets)
    done = [group for group, error in found.items() if error is None]
    try:
        stored = await committed_offsets(cluster, done)
    except HeadraceError:
        return found  # the offsets were set, and cannot be compared
    differing = {
        group: wrong
        for group in done
        if not isinstance(there := stored[group], HeadraceError)
        and (wrong := _differing(offsets[group], there))
    }
    if not differing:
        return found
    log.warning("offsets of groups differ from what was set: set again", groups=sorted(differing))
    return found | await _set_offsets(cluster, differing)


async def _set_offsets(
    cluster: ClusterClient, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
) -> Found[None]:
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


def _differing(desired: Mapping[TopicPartition, Committed], stored: Offsets) -> Offsets:
    """Return the desired offsets that are not stored.

    An offset with a leader epoch was committed by a consumer after ``desired`` was set. Offsets
    that headrace sets have none.
    """
    return {
        at: one
        for at, one in desired.items()
        if (there := stored.get(at)) is None
        or (there.offset != one.offset and there.leader_epoch < 0)
    }


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


# Requests for share groups (KIP-932) at their coordinators. Brokers serve them since Kafka 4.1.
# librdkafka does not support them.

T = TypeVar("T")
_FIRST_ASSIGNMENT = 2
"""Assignment epoch of a share group after its first members have joined.

A group that never had members has epoch 1, or 0 before Kafka 4.3 (KAFKA-20268). Before 4.3 the
first members also have epoch 1, so that this test does not find them. Only a start offset shows
that such a group was used.
"""
_DELETED = {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}


async def share_starts(
    cluster: ClusterClient, groups: Iterable[str]
) -> Found[dict[TopicPartition, int]]:
    """Return the start offset of each partition that has one, by group, or an error.

    Only topics that the principal may describe are included. A group that does not exist or is no
    share group has no start offsets. Raise ``Unreachable``, ``AccessDenied`` or ``NoShareGroups``.
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
    """Set start offsets of share groups. Groups that do not exist are created (since Kafka 4.2).

    The result of each group is None or an error. It is ``GroupActive`` for a group with members.
    Raise errors as ``share_starts`` does.
    """

    async def ask(connection: Connection, those: Collection[str]) -> Found[None]:
        found: Found[None] = {}
        for group in those:
            request = _alter(group, starts[group])
            response = await connection.send(call(request, AlterShareGroupOffsetsResponse))
            found[group] = _start_not_set(cluster, group, response)
        return found

    return await _where_served(cluster, starts, ask)


async def used_share_groups(cluster: ClusterClient, groups: Iterable[str]) -> Found[bool]:
    """Return True for each group that has or had members. Raise errors as ``share_starts`` does."""

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


def _start_not_set(
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
