"""The mover of a flow, by its spec and by what the target supports."""

from collections.abc import Callable

from headrace.api import ClusterAccess, ReplicationFlowSpec
from headrace.api.flow import DeliveryMode
from headrace.api.offsets import OffsetsMode
from headrace.logs import get_logger
from headrace.movers.bandwidth import TokenBucket
from headrace.movers.batch import BatchMover
from headrace.movers.batch.requirements import NoTransactions, check_clusters
from headrace.movers.lane import Mover
from headrace.movers.preserved.mover import PreservedMover
from headrace.replication import RecordChanges

log = get_logger(__name__)

_Spec = Callable[[], ReplicationFlowSpec]
MakeMover = Callable[
    [_Spec, ClusterAccess, ClusterAccess, Callable[[str], str], TokenBucket], Mover
]
"""Returns the mover of a flow, as ``make_mover`` does."""


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

    ``spec`` returns the present spec. ``target_topic`` returns a topic's name on the target. Raises
    ``UnsupportedBroker``, and ``Retriable`` while no broker of the target answers.
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
