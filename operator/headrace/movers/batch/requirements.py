"""Checks of two clusters for the batch mover, once in each driver before its first task copies."""

from contextlib import suppress

from headrace.api import ClusterAccess
from headrace.errors import Fatal, GaveUp, HeadraceError, Retriable, Unreachable
from headrace.kafka.wire import (
    ClusterClient,
    ConnectionSettings,
    EventLoop,
    Reply,
    RequestRefused,
    Transactions,
    UnsupportedBroker,
    start,
)

_CONNECT_S = 10.0
"""Time by which an unreachable broker delays the first task."""
_COORDINATOR_S = 15.0
"""The first who asks for a coordinator has its topic created, which takes a second or two."""
_ALL_S = 60.0
_TRANSACTIONS = "__transaction_state"


class NoTransactions(Fatal):
    """A target that cannot create the topic of its transactions."""


def check_clusters(
    source: ClusterAccess, target: ClusterAccess, *, coordinator_s: float = _COORDINATOR_S
) -> None:
    """Check versions, and whether the target can fence writers.

    Unreachable brokers are not checked, and neither are brokers that start later. The whole source
    may be unreachable: a fail-over after a disaster fences writers without it. A missing permission
    is not an error here: without it the mover copies and fences no writer. Raise
    ``UnsupportedBroker`` and ``NoTransactions``, and ``Retriable`` while no broker of the target
    responds.
    """
    loop = EventLoop()
    settings = ConnectionSettings(connect_timeout_s=_CONNECT_S)
    clusters = [ClusterClient(loop, access, settings) for access in (source, target)]
    try:
        with suppress(Unreachable):
            loop.wait(start(_check_versions(clusters[0])), _ALL_S)
        loop.wait(start(_check_versions(clusters[1])), _ALL_S)
        loop.wait(start(_check_coordinator(clusters[1], coordinator_s)), _ALL_S)
    except GaveUp as error:
        raise Retriable(f"could not find out which mover can be used: {error}") from error
    finally:
        for cluster in clusters:
            cluster.close()
        loop.close()


async def _check_versions(cluster: ClusterClient) -> None:
    """Check each reachable broker; a connection begins with the exchange of versions."""
    view = await cluster.refresh()
    opening: list[Reply[object]] = [start(cluster.connection(node)) for node in view.brokers]
    for reply in opening:
        try:
            await reply
        except UnsupportedBroker:
            raise
        except HeadraceError:  # an unreachable broker, or a failed login
            continue


async def _check_coordinator(target: ClusterClient, within_s: float) -> None:
    try:
        await Transactions(target, "headrace-").find(timeout_s=within_s)
    except RequestRefused as error:
        if error.code.name != "coordinator_not_available":
            return
        view = await target.refresh([_TRANSACTIONS])
        topic = view.topics.get(_TRANSACTIONS)
        if topic is not None and topic.error.name == "unknown_topic_or_partition":
            raise NoTransactions(
                f"{target.name} has no transaction coordinator and cannot create "
                f"{_TRANSACTIONS}: set transaction.state.log.replication.factor of its brokers to "
                "their number at most, then restart the drivers"
            ) from error
    except HeadraceError:
        return  # a take-over asks again, and says what is missing
