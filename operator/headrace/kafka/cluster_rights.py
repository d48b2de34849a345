"""What a principal may do on the cluster itself."""

from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.operations import FORBIDDEN, Operation, operations
from headrace.kafka.wire import answer_to_acls


class ClusterRights(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s."""

    def cluster_rights(self) -> frozenset[Operation]:
        """On the cluster itself."""
        client, tried = self._requests.client, f"describe {self.name}"
        future = self._requests.call(
            tried,
            lambda: client.describe_cluster(
                include_authorized_operations=True, request_timeout=self._timeout_s
            ),
        )
        found = self._requests.result(tried, future).authorized_operations
        # The client's None is also an empty list: no operation at all.
        if found is None and self._on_wire(answer_to_acls).value in FORBIDDEN:
            return frozenset()
        return operations(found)
