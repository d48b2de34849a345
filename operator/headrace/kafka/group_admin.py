"""Consumer groups of a cluster: which there are, and what they have committed."""

from collections.abc import Collection, Mapping

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.wire import (
    Committed,
    committed_offsets,
    list_groups,
    set_committed_offsets,
)


class GroupAdmin(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s."""

    def groups(self) -> set[str]:
        """Return the consumer groups that the principal may describe."""
        client = self._requests.client
        tried = f"list the consumer groups of {self.name}"
        future = self._requests.call(
            tried, lambda: client.list_consumer_groups(request_timeout=self._timeout_s)
        )
        found = self._requests.result(tried, future)
        if found.errors:
            raise self._requests.failed(found.errors[0], tried)
        return {group.group_id for group in found.valid}

    def protocol_types(self) -> dict[str, str]:
        """The groups that the principal may describe, of any kind: ``consumer``, ``share``,
        ``streams``, ``connect``; empty for offsets without a protocol. ``groups`` has those of
        ``consumer`` and without a protocol only."""
        return {group: one.protocol_type for group, one in self._on_wire(list_groups).items()}

    def groups_with_members(self) -> dict[str, str]:
        """Return the groups of any kind that have members, with their protocol types.

        Brokers before Kafka 2.6 list no states: their groups are described one by one.
        """
        found = {}
        for group, one in self._on_wire(list_groups).items():
            known = one.has_members
            if known or (known is None and self.has_members(group)):
                found[group] = one.protocol_type
        return found

    def has_members(self, group: str) -> bool:
        """Whether a group of any kind, as one of Connect's workers, has members; ``False`` of one
        that is not there, or that the principal may not describe."""
        client = self._requests.client
        tried = f"describe group {group} of {self.name}"
        found = self._requests.call(
            tried, lambda: client.list_groups(group, timeout=self._timeout_s)
        )
        return any(one.members for one in found)

    def committed(
        self, groups: Collection[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """What these groups have committed, of each topic that the principal may describe; and why
        that of some groups cannot be read."""
        return self._on_wire_by_group(groups, lambda cluster: committed_offsets(cluster, groups))

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[str, HeadraceError]:
        """Set what these groups have committed; why some could not be set, all of it or a part:
        ``GroupActive`` of those that have members."""
        _, failed = self._on_wire_by_group(
            offsets, lambda cluster: set_committed_offsets(cluster, offsets)
        )
        return failed
