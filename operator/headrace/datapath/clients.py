"""Kafka clients of a flow, and creation of its mover."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.api import ClusterAccess, ReplicationFlowSpec, TopicPartition
from headrace.api.flow import DeliveryMode
from headrace.api.offsets import OffsetsMode
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.fence import NoTransactions, check_clusters
from headrace.datapath.lane import Mover
from headrace.datapath.mover import BatchMover
from headrace.datapath.preserved.mover import PreservedMover
from headrace.datapath.record_consumer import RecordConsumer
from headrace.datapath.tail import transactions_decided
from headrace.kafka import (
    AclAdmin,
    Admin,
    RecordProducer,
    RightsAdmin,
    Throttled,
)
from headrace.logs import get_logger
from headrace.replication import RecordChanges
from headrace.replication.reconcile import Decided

log = get_logger(__name__)

_Spec = Callable[[], ReplicationFlowSpec]
MakeMover = Callable[
    [_Spec, ClusterAccess, ClusterAccess, Callable[[str], str], TokenBucket], Mover
]
"""Function that creates the mover of a flow, as ``make_mover`` does."""


def make_mover(
    spec: _Spec,
    source: ClusterAccess,
    target: ClusterAccess,
    target_topic: Callable[[str], str],
    bandwidth: TokenBucket,
    *,
    check: Callable[[ClusterAccess, ClusterAccess], None] = check_clusters,
) -> BatchMover:
    """Check both clusters, and return the mover of a flow.

    Args:
        spec: Returns the current spec of the flow.
        source: Access to the source.
        target: Access to the target.
        target_topic: Returns a topic's name on the target.
        bandwidth: Limit of the read rate.
        check: Checks the clusters' features.

    Raises:
        UnsupportedBroker: A cluster lacks a required feature.
        Retriable: No broker of the target responds.
    """
    fences_impossible = ""
    try:
        check(source, target)
    except NoTransactions as error:
        fences_impossible = str(error)
        log.warning("earlier owners cannot be fenced", target=target.alias, why=fences_impossible)
    asked = spec()
    make = PreservedMover if asked.offsets.mode is OffsetsMode.PRESERVED else BatchMover
    return make(
        source,
        target,
        target_topic,
        verification=lambda: spec().batch_verification,
        bandwidth=bandwidth,
        exactly_once=asked.delivery.mode is DeliveryMode.EXACTLY_ONCE,
        holes=asked.offsets.holes,
        records=RecordChanges(asked.record_filter, asked.headers),
        compression=asked.target.compression,
        fences_impossible=fences_impossible,
    )


def raise_throttled(error: Throttled) -> None:
    """Raise the error. Drivers report it, and continue to read with the same client."""
    raise error


@dataclass(frozen=True)
class Clients:
    """Factories of Kafka clients. Tests replace them with factories of a fake cluster."""

    consumer: Callable[..., RecordConsumer] = RecordConsumer
    producer: Callable[..., RecordProducer] = RecordProducer
    admin: Callable[[ClusterAccess], Admin] = Admin
    mover: MakeMover = make_mover
    transactions_decided: Callable[[ClusterAccess, TopicPartition, range], Sequence[Decided]] = (
        transactions_decided
    )
    acls: Callable[[ClusterAccess], AclAdmin] = AclAdmin
    rights: Callable[[ClusterAccess], RightsAdmin] = RightsAdmin
    on_throttled: Callable[[Throttled], None] = raise_throttled
    """Called about every ten seconds while a quota delays an internal topic that is being read. If
    it returns, the caller continues to wait."""


KAFKA = Clients()
