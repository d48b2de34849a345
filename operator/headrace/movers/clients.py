"""Where a flow's Kafka clients come from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka import (
    AclAdmin,
    Admin,
    Consumer,
    Producer,
    RightsAdmin,
    make_consumer,
    make_producer,
)
from headrace.movers.batch.endings import transactions_decided
from headrace.movers.making import MakeMover, make_mover
from headrace.replication.reconcile import Decided


@dataclass(frozen=True)
class Clients:
    """The factories of ``headrace.kafka``; a test puts its own cluster in their place."""

    consumer: Callable[..., Consumer] = make_consumer
    producer: Callable[..., Producer] = make_producer
    admin: Callable[[ClusterAccess], Admin] = Admin
    mover: MakeMover = make_mover
    transactions_decided: Callable[[ClusterAccess, TopicPartition, range], Sequence[Decided]] = (
        transactions_decided
    )
    acls: Callable[[ClusterAccess], AclAdmin] = AclAdmin
    rights: Callable[[ClusterAccess], RightsAdmin] = RightsAdmin


KAFKA = Clients()
