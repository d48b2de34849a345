"""Requests of a fence: transaction markers that are written and read.

A marker ends what is open of its producer in its partition. So an abort must not come behind
records that were committed and lost that marker (a *leftover*: ``leftovers`` commits those first),
and a transaction over data and progress is closed in both.
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
"""Time for a coordinator that moves; elections take seconds."""
READ_S = 5.0
"""From a coordinator's answer to the marker, and from one fetch to the next."""
LEADER_S = 5.0
"""The leader of a partition; one that moves takes less."""
_ROUNDS = 5
_REPLACED = {"invalid_producer_epoch", "producer_fenced", "invalid_producer_id_mapping"}
"""Errors that mean that another process has raised the epoch."""

Closing = Mapping[str, Collection[TopicPartition]]
"""By transactional id."""
T = TypeVar("T")


async def new_epoch(target: ClusterClient, transactional_id: str) -> ProducerIdentity:
    """Return an identity with a new epoch.

    An open transaction of this id is aborted. A transaction that is being committed is committed
    when the call returns.
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
    """Afterwards it is final which of them were committed, as long as nobody has these ids."""
    replies = {name: start(new_epoch(target, name)) for name in transactional_ids}
    for name, reply in replies.items():
        try:
            await reply
        except Fatal as error:  # nobody may fence it
            log.warning("its transaction is not ended", transactional_id=name, why=str(error))


async def write_markers(
    target: ClusterClient, own: OwnerProducer, closing: Closing, *, commit: bool = False
) -> dict[str, ProducerIdentity]:
    """Write markers; return the identity of each transactional id's markers."""
    replies = {
        transactional_id: start(_mark(target, transactional_id, own, partitions, commit=commit))
        for transactional_id, partitions in closing.items()
    }
    marked = {}
    for transactional_id, reply in replies.items():
        try:
            marked[transactional_id] = await reply
        except Fatal as error:  # it may not be fenced; its partitions are copied nevertheless
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
    """Write a marker with a higher epoch, or with the epoch of ``own`` if the id is its own."""
    transactions = Transactions(target, transactional_id)
    mine = transactional_id == own.transactional_id
    identity = ProducerIdentity(own.producer_id, own.producer_epoch) if mine else None
    for attempt in range(_ROUNDS):
        try:
            # Another epoch would abort what a commit without an answer has not committed.
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
    """Return partitions whose leader does not respond, and where the others' logs end.

    A partition is also returned if the leader of its progress does not respond. A marker for a
    partition without a leader would be lost, and its transaction would be pending for all other
    partitions of that writer.
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
    """Return an error for each of ``partitions``, by target, that depends on a failed one."""
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
    """Return the partitions in which not every marker was written; read them from ``ends`` on."""
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
