"""Tests permissions on missing topics, on a transactional id, and on the cluster.

The requests cannot have an effect. A broker checks permissions first. If they are sufficient, it
responds that the topic does not exist, or that no transaction has this producer id.
"""

from collections.abc import Collection, Iterable

from kio.schema.describe_acls.v2 import DescribeAclsRequest, DescribeAclsResponse
from kio.schema.end_txn.v3 import EndTxnRequest, EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i8, i16

from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.fetch import FetchPosition, fetch_call
from headrace.kafka.wire.produce import Answer, produce_call
from headrace.kafka.wire.protocol import call

_FORBIDDEN = {
    ErrorCode.topic_authorization_failed,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.transactional_id_authorization_failed,
}
_NO_PRODUCER = ProducerId(2**62)
"""Producer id that no broker has assigned. Brokers assign ids from 0 on."""
_TOPIC, _LITERAL, _READ, _ALLOW = i8(2), i8(3), i8(3), i8(3)
"""Codes of ResourceType, PatternType, AclOperation and AclPermissionType."""


async def unreadable(cluster: ClusterClient, topics: Collection[str]) -> set[str]:
    """Return the topics that the principal may not read, of ``topics`` that do not exist."""
    wanted = [FetchPosition(None, 0, 0, max_bytes=1, topic=one) for one in topics]
    connection = await cluster.any_connection()
    response = await connection.send(fetch_call(wanted, max_wait_ms=0, min_bytes=0))
    try:
        return _forbidden((one.topic, one.error) for one in response.partitions)
    finally:
        response.release()


async def unwritable(cluster: ClusterClient, topics: Collection[str]) -> set[str]:
    """Return the topics that the principal may not write, of ``topics`` that do not exist.

    If a topic was created in the meantime, the broker rejects the invalid batch.
    """
    connection = await cluster.any_connection()
    response = await connection.send(produce_call({one: {0: b""} for one in topics}))
    answers: Iterable[tuple[str, Answer]] = (
        (at.topic, answer) for at, answer in response.answers.items()
    )
    return _forbidden((topic, answer.code) for topic, answer in answers)


async def may_use_transactional_id(cluster: ClusterClient, transactional_id: str) -> bool:
    """Return True if the principal may write with this transactional id."""
    request = EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=_NO_PRODUCER,
        producer_epoch=i16(0),
        committed=False,
    )
    connection = await cluster.any_connection()
    response = await connection.send(call(request, EndTxnResponse))
    return response.error_code not in _FORBIDDEN


async def answer_to_acls(cluster: ClusterClient) -> ErrorCode:
    """Return the broker's response to a request to list ACLs, which needs Describe on the cluster.

    confluent-kafka 2.16.1 cannot report it: it treats a rejected list as an empty one.
    """
    request = DescribeAclsRequest(
        resource_type_filter=_TOPIC,
        resource_name_filter="headrace",
        pattern_type_filter=_LITERAL,
        principal_filter="User:headrace",
        host_filter="*",
        operation=_READ,
        permission_type=_ALLOW,
    )
    connection = await cluster.any_connection()
    response = await connection.send(call(request, DescribeAclsResponse))
    return response.error_code


def _forbidden(codes: Iterable[tuple[str, ErrorCode]]) -> set[str]:
    return {topic for topic, code in codes if code in _FORBIDDEN}
