"""Requests of a fence: transaction markers are written and read.

A marker ends its producer's open transaction in its partition. Before an abort,
``fence.commit_leftovers`` therefore commits records whose commit marker was lost; the abort would
drop them. A transaction over data and progress is ended in the partitions of both.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Set
from math import inf
from typing import Any, TypeVar

from headrace.api import TopicPartition
from headrace.datapath.lane import Before
from headrace.datapath.tail import Tail
from headrace.datapath.transactions import TRANSACTION_MS
from headrace.errors import Fatal, GaveUp, HeadraceError, Retriable
from headrace.kafka.wire import (
    ClusterClient,
    ConnectionLost,
    EpochEnd,
    EventLoop,
    ProducerIdentity,
    Reply,
    RequestRefused,
    Transactions,
    log_ends,
    start,
)
from headrace.logs import get_logger
from headrace.replication import OwnerProducer
from headrace.replication.reconcile import Marker

log = get_logger(__name__)

COORDINATOR_S = 15.0
"""Time for a request to a coordinator. It covers an election, which takes seconds."""
READ_S = 5.0
"""Time limit in seconds for a marker to appear in the log after the coordinator's response, and for
each fetch."""
LEADER_S = 5.0
"""Time limit in seconds of a request to a partition's leader. A leader election fits into it."""
_ROUNDS = 5
_REPLACED = {"invalid_producer_epoch", "producer_fenced", "invalid_producer_id_mapping"}
"""Errors that mean that another process has raised the epoch."""

Closing = Mapping[str, Collection[TopicPartition]]
"""Partitions in which to write markers, by transactional id."""
T = TypeVar("T")


async def new_epoch(target: ClusterClient, transactional_id: str) -> ProducerIdentity:
    """Return an identity with a new epoch.

    An open transaction of this id is aborted. If a commit was in progress, the transaction is
    committed when the call returns.
    """
    transactions = Transactions(target, transactional_id)
    try:
        return await transactions.init_producer_id(
            timeout_ms=TRANSACTION_MS, timeout_s=COORDINATOR_S
        )
    except RequestRefused as error:
        if error.code.name != "invalid_transaction_timeout":
            raise
        why = f"set transaction.max.timeout.ms of its brokers to {TRANSACTION_MS} or more"
        raise Fatal(f"{error}: {why}") from error


async def end_transactions(target: ClusterClient, transactional_ids: Collection[str]) -> None:
    """End the open transactions of these ids.

    Afterwards the outcome of their earlier transactions is final. An id without permission is
    skipped.
    """
    replies = {name: start(new_epoch(target, name)) for name in transactional_ids}
    for name, reply in replies.items():
        try:
            await reply
        except Fatal as error:  # no permission
            log.warning("its transaction is not ended", transactional_id=name, why=str(error))


async def write_markers(
    target: ClusterClient, own: OwnerProducer, closing: Closing, *, commit: bool = False
) -> dict[str, ProducerIdentity]:
    """Write markers of each transactional id; return the identity in the markers of each id.

    An id without permission is skipped.
    """
    replies = {
        transactional_id: start(_mark(target, transactional_id, own, partitions, commit=commit))
        for transactional_id, partitions in closing.items()
    }
    marked = {}
    for transactional_id, reply in replies.items():
        try:
            marked[transactional_id] = await reply
        except Fatal as error:  # no permission; its partitions are copied anyway
            log.warning("not fenced", transactional_id=transactional_id, why=str(error))
    return marked


async def _mark(
    target: ClusterClient,
    transactional_id: str,
    own: OwnerProducer,
    partitions: Collection[TopicPartition],
    *,
    commit: bool,
) -> ProducerIdentity:
    """Write markers with a new epoch, or with the epoch of ``own`` if the id belongs to ``own``."""
    transactions = Transactions(target, transactional_id)
    mine = transactional_id == own.transactional_id
    identity = ProducerIdentity(own.producer_id, own.producer_epoch) if mine else None
    for attempt in range(_ROUNDS):
        try:
            # A new epoch would abort a commit whose response was lost.
            if identity is None or not (mine or commit):
                identity = await new_epoch(target, transactional_id)
            await transactions.add_partitions(identity, partitions, timeout_s=COORDINATOR_S)
            await transactions.end(identity, commit=commit, timeout_s=COORDINATOR_S)
        except (ConnectionLost, RequestRefused) as error:
            replaced = isinstance(error, RequestRefused) and error.code.name in _REPLACED
            if replaced and (mine or commit):
                raise Retriable(f"{error}: it is tried again with a new one") from error
            lost = isinstance(error, ConnectionLost)
            if attempt + 1 == _ROUNDS or not (replaced or lost):
                raise
        else:
            return identity
    raise AssertionError("the last round returns or raises")


def log_ends_of(
    target: ClusterClient, partitions: Collection[Before]
) -> tuple[dict[TopicPartition, Retriable], Mapping[TopicPartition, EpochEnd]]:
    """Return errors by partition, and the log ends of the other partitions.

    A partition fails if its leader, or the leader of its progress partition, does not respond. A
    marker for a partition without a leader would be lost, and its writer's transaction, which may
    include other partitions, would stay pending.
    """
    asked = {at for before in partitions if before.writers for at in before.closed}
    if not asked:
        return {}, {}
    ends = wait_for(target.loop, log_ends(target, asked, timeout_s=LEADER_S), 10.0)
    for error in ends.failed.values():
        if not isinstance(error, Retriable):
            raise error
    return failed_with(partitions, ends.failed), ends.found


def failed_with(
    partitions: Iterable[Before], failed: Mapping[TopicPartition, HeadraceError]
) -> dict[TopicPartition, Retriable]:
    """Return an error for each of ``partitions`` whose target or progress partition failed."""
    return {
        before.target: Retriable(
            f"could not fence earlier writers of {before.target} yet: {failed[at]}"
        )
        for before in partitions
        if before.writers
        for at in before.closed
        if at in failed
    }


def unread_markers(
    target: ClusterClient,
    ends: Mapping[TopicPartition, EpochEnd],
    closing: Closing,
    marked: Mapping[str, ProducerIdentity],
    partitions: Set[TopicPartition],
) -> dict[TopicPartition, HeadraceError]:
    """Read partitions from ``ends`` on; return the errors of partitions that lack a marker."""
    failed: dict[TopicPartition, HeadraceError] = {}
    for at in sorted(partitions):
        awaited = {
            identity.producer_id: identity.epoch
            for name, identity in marked.items()
            if at in closing[name]
        }
        entries = Tail(target, at, ends[at].end_offset, patience_s=READ_S).of_target()
        try:
            while awaited:
                entry = next(entries)
                if isinstance(entry, Marker) and entry.producer_epoch >= awaited.get(
                    entry.producer_id, inf
                ):
                    del awaited[entry.producer_id]
        except HeadraceError as error:
            failed[at] = error
    return failed


def wait_for(
    loop: EventLoop,
    coroutine: Coroutine[Reply[Any], None, T],
    timeout_s: float,
    tried: str = "fence earlier writers on the target",
) -> T:
    """Return the coroutine's result; raise ``Retriable`` if it takes longer."""
    try:
        return loop.wait(start(coroutine), timeout_s)
    except GaveUp as error:
        raise Retriable(f"could not {tried}: {error}") from error
