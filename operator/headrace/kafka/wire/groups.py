"""The groups of a cluster with their kinds: librdkafka leaves out those of KIP-932 and KIP-1071."""

from typing import NamedTuple

from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse

from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.errors import check
from headrace.kafka.wire.protocol import call

_WITHOUT_MEMBERS = {"Empty", "Dead"}
"""States of groups of all kinds."""


class GroupListing(NamedTuple):
    """A group as its coordinator lists it."""

    protocol_type: str
    """``consumer``, ``share``, ``streams`` or ``connect``; empty for offsets without a protocol."""
    state: str
    """Name of the state, as ``Stable`` or ``Reconciling``; empty before Kafka 2.6."""

    @property
    def has_members(self) -> bool | None:
        """Whether the group has members, as it has in every state that is not known to have none.

        None if the broker did not list the state.
        """
        return self.state not in _WITHOUT_MEMBERS if self.state else None


async def list_groups(cluster: ClusterClient) -> dict[str, GroupListing]:
    """Return the groups that the principal may describe.

    Each broker lists the groups that it coordinates. Raises ``Refused``, ``Unreachable``.
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
