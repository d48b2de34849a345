"""What ACLs allow, and the codes by which brokers refuse it."""

from collections.abc import Iterable
from enum import StrEnum

from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation


class Operation(StrEnum):
    """What an ACL allows, in the names of kafka-acls.sh."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    DELETE = "Delete"


ALL = frozenset(Operation)
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_BY_CLIENT = {getattr(AclOperation, one.name): one for one in Operation}


def operations(of_client: Iterable[AclOperation] | None) -> frozenset[Operation]:
    """``None`` is no answer: there is no authorizer, which allows all."""
    if of_client is None:
        return ALL
    return frozenset(_BY_CLIENT[one] for one in of_client if one in _BY_CLIENT)
