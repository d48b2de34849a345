"""What ``spec.mover: Auto`` is: Batch, unless one of these reasons keeps it from that."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.api import ClusterAccess, Mover, Reason, ReplicationFlowSpec
from headrace.kafka.wire import UnsupportedBroker
from headrace.movers.batch.requirements import NoTransactions

FOR_RECORDS = (
    "client.dns.lookup",
    "compression.codec",
    "compression.level",
    "compression.type",
)
"""Settings of a cluster's ``config`` that the batch mover would leave without effect, where that
changes what the target holds, or whether a broker is reached. Others say how our own batches are
made and fetched: it makes none."""

CheckClusters = Callable[[ClusterAccess, ClusterAccess], None]


class Choice(NamedTuple):
    """Which mover a flow has on one driver."""

    mover: Mover
    """Batch or Record."""
    reason: Reason | None = None
    """Why Auto is not Batch."""
    why: str = ""
    """The same, as a sentence."""
    fences_impossible: str = ""
    """Why the target cannot fence earlier owners, whose batches may then be repeated."""


def choose(
    spec: ReplicationFlowSpec, source: ClusterAccess, target: ClusterAccess, check: CheckClusters
) -> Choice:
    """Return the mover of a flow.

    ``check`` is ``check_clusters``, which is not called with mover Record. Raises ``Retriable``
    while no broker of a cluster answers, and ``UnsupportedBroker`` with mover Batch.
    """
    if spec.mover is Mover.RECORD:
        return Choice(spec.mover)
    for cluster in (source, target) if spec.mover is Mover.AUTO else ():
        if found := [name for name in FOR_RECORDS if name in cluster.spec.config]:
            return Choice(
                Mover.RECORD,
                Reason.SETTING_FOR_RECORDS,
                f"{cluster.field}.config sets {', '.join(found)}, which only mover Record has a "
                "use for: remove it for batches to be copied as they are",
            )
    try:
        check(source, target)
    except UnsupportedBroker as error:
        if spec.mover is Mover.BATCH:
            raise
        return Choice(Mover.RECORD, Reason.BROKER_TOO_OLD, str(error))
    except NoTransactions as error:
        return Choice(Mover.BATCH, fences_impossible=str(error))
    return Choice(Mover.BATCH)
