"""Share groups of a cluster: their start offsets."""

from collections.abc import Collection, Mapping

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.wire import set_share_starts, share_starts, used_share_groups

SHARE = "share"
"""Kafka's protocol type of share groups."""


class ShareGroupAdmin(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s; nothing is raised: each says why there is no answer for
    some groups, ``NoShareGroups`` where the cluster has none."""

    def share_starts(
        self, groups: Collection[str]
    ) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, HeadraceError]]:
        """The start offsets of these groups, of each topic that the principal may describe."""
        return self._on_wire_by_group(groups, lambda cluster: share_starts(cluster, groups))

    def set_share_starts(
        self, starts: Mapping[str, Mapping[TopicPartition, int]]
    ) -> dict[str, HeadraceError]:
        """Why the start offsets of some groups could not be set, all of them or a part:
        ``GroupActive`` of those that have members."""
        _, failed = self._on_wire_by_group(
            starts, lambda cluster: set_share_starts(cluster, starts)
        )
        return failed

    def used_share_groups(
        self, groups: Collection[str]
    ) -> tuple[set[str], dict[str, HeadraceError]]:
        """Those of these groups that have, or ever had, members."""
        found, failed = self._on_wire_by_group(
            groups, lambda cluster: used_share_groups(cluster, groups)
        )
        return {group for group, used in found.items() if used}, failed
