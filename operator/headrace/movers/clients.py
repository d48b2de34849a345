"""Where a flow's Kafka clients come from."""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.api import ClusterAccess
from headrace.kafka import (
    AclAdmin,
    Admin,
    Consumer,
    Producer,
    RightsAdmin,
    make_consumer,
    make_producer,
)
from headrace.movers.batch.requirements import check_clusters
from headrace.movers.choosing import CheckClusters


@dataclass(frozen=True)
class Clients:
    """The factories of ``headrace.kafka``; a test puts its own cluster in their place."""

    consumer: Callable[..., Consumer] = make_consumer
    producer: Callable[..., Producer] = make_producer
    admin: Callable[[ClusterAccess], Admin] = Admin
    check_clusters: CheckClusters = check_clusters
    acls: Callable[[ClusterAccess], AclAdmin] = AclAdmin
    rights: Callable[[ClusterAccess], RightsAdmin] = RightsAdmin


KAFKA = Clients()
