"""The groups of a cluster with their kinds: librdkafka leaves out those of KIP-932 and KIP-1071."""

from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse

from headrace.kafka.wire.cluster import Cluster
from headrace.kafka.wire.errors import check
from headrace.kafka.wire.protocol import call


async def protocol_types(cluster: Cluster) -> dict[str, str]:
    """By group, of those that the principal may describe: ``consumer``, ``share``, ``streams``,
    ``connect``; empty for offsets without a protocol.

    Each broker lists the groups that it coordinates. Raises ``Refused``, ``Unreachable``.
    """
    found: dict[str, str] = {}
    view = await cluster.refresh()
    for node in view.brokers:
        connection = await cluster.connection(node)
        response = await connection.send(call(ListGroupsRequest(), ListGroupsResponse))
        check(response.error_code, f"list the groups of {cluster.name}")
        found |= {one.group_id: one.protocol_type for one in response.groups}
    return found
