"""What a principal may do on the cluster itself."""

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from headrace.errors import HeadraceError
from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.errors import code_of
from headrace.kafka.operations import FORBIDDEN, Operation, operations


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
        return frozenset() if found is None and self._may_not_describe() else operations(found)

    def _may_not_describe(self) -> bool:
        """Whether the cluster refuses to list ACLs, which takes Describe on it."""
        some = AclBindingFilter(
            ResourceType.TOPIC,
            "headrace",
            ResourcePatternType.LITERAL,
            "User:headrace",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        client, tried = self._requests.client, f"list ACLs of {self.name}"
        future = self._requests.call(
            tried, lambda: client.describe_acls(some, request_timeout=self._timeout_s)
        )
        try:
            self._requests.result(tried, future)
        except HeadraceError as error:
            if code_of(error) not in {*FORBIDDEN, KafkaError.SECURITY_DISABLED}:
                raise
            return code_of(error) in FORBIDDEN
        return False
