"""Closes partitions of the target to those who wrote them before, and finds where to resume.

A marker of an empty transaction, with the next epoch of a writer's producer id, makes brokers
refuse all that this writer sends later. It closes a partition once it is *read there*, below the
high watermark: what a coordinator answers is a promise.
"""

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from itertools import chain
from math import inf
from typing import Any, TypeVar

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import Fatal, GaveUp, Retriable
from headrace.kafka.wire import (
    Cluster,
    ConnectionLost,
    Loop,
    ProducerIdentity,
    Refused,
    Reply,
    Settings,
    Transactions,
    epoch_ends,
    log_ends,
    start,
)
from headrace.logs import get_logger
from headrace.movers.batch.tail import Tail
from headrace.movers.lane import Before, Closed, Resumed
from headrace.replication import Writer
from headrace.replication.reconcile import Dropped, Marker, Outcome, Record, Stored, reconcile

log = get_logger(__name__)

_WITHIN_S = 15.0
"""Of a coordinator that moves; elections take seconds."""
_READ_WITHIN_S = 5.0
"""From a coordinator's answer to the marker, and from one fetch to the next."""
_ANSWERS_WITHIN_S = 5.0
"""The leader of a partition; one that moves takes less."""
_ROUNDS = 5
_REPLACED = {"invalid_producer_epoch", "producer_fenced", "invalid_producer_id_mapping"}
"""Somebody else raised the epoch meanwhile."""

T = TypeVar("T")


class MarkerFencing:
    """See ``Fencing``. For one call each: it has connections of its own, and waits."""

    def __init__(self, source: ClusterAccess, target: ClusterAccess, settings: Settings) -> None:
        self._source, self._target, self._settings = source, target, settings

    def identify(self, transactional_id: str) -> Writer:
        """See ``Fencing.identify``."""
        with _Clients(self) as (loop, _, target):
            transactions = Transactions(target, transactional_id)
            asked = transactions.init_producer_id(timeout_s=_WITHIN_S)
            identity = _wait(loop, asked, 2 * _WITHIN_S)
            return Writer(transactional_id, identity.producer_id, identity.epoch)

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | Retriable]:
        """See ``Fencing.epoch_ends``."""
        with _Clients(self) as (loop, _, target):
            asked = epoch_ends(target, epochs, timeout_s=_ANSWERS_WITHIN_S)
            tried = "find where the logs of the target end"
            answers = _wait(loop, asked, 2 * _ANSWERS_WITHIN_S, tried)
        found: dict[TopicPartition, int | Retriable] = {
            at: end.end_offset for at, end in answers.found.items() if end.leader_epoch >= 0
        }
        for at, error in answers.failed.items():
            if isinstance(error, Retriable):
                found[at] = error
            else:
                log.warning(
                    "losses of the target are not looked for", partition=str(at), why=str(error)
                )
        return found

    def resume(
        self, own: Writer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Resumed | Retriable]:
        """See ``Fencing.resume``."""
        with _Clients(self) as (_, source, target):
            leaderless, marked = _marked(target, own, partitions.values())
            return {
                at: leaderless.get(before.target)
                or _resumed(source, target, at, before, _fences(before, marked))
                for at, before in partitions.items()
            }

    def close(
        self, own: Writer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Closed | Retriable]:
        """See ``Fencing.close``."""
        with _Clients(self) as (_, _, target):
            leaderless, marked = _marked(target, own, partitions.values())
            return {
                at: leaderless.get(before.target)
                or _closed(target, before, _fences(before, marked))
                for at, before in partitions.items()
            }


def _marked(
    target: Cluster, own: Writer, partitions: Collection[Before]
) -> tuple[dict[TopicPartition, Retriable], dict[str, ProducerIdentity]]:
    """Let markers be written, but for the partitions that have no leader."""
    leaderless = _leaderless(target, partitions)
    closing: dict[str, set[TopicPartition]] = {}
    for before in partitions:
        for writer in before.writers if before.target not in leaderless else ():
            closing.setdefault(writer.transactional_id, set()).add(before.target)
    marked: dict[str, ProducerIdentity] = {}
    if closing:
        marked = _wait(target.loop, _close(target, own, closing), 4 * _WITHIN_S)
    return leaderless, marked


def _leaderless(target: Cluster, partitions: Iterable[Before]) -> dict[TopicPartition, Retriable]:
    """Those whose leader does not answer: a marker for one without a leader would be lost, and its
    transaction be pending for all the others of that writer."""
    targets = {before.target for before in partitions if before.writers}
    if not targets:
        return {}
    ends = _wait(target.loop, log_ends(target, targets, timeout_s=_ANSWERS_WITHIN_S), 10.0)
    found = {}
    for at, error in ends.failed.items():
        if not isinstance(error, Retriable):
            raise error
        found[at] = Retriable(f"could not fence earlier writers of {at} yet: {error}")
    return found


class _Clients:
    """A loop, and clients of both clusters, for as long as a call takes."""

    def __init__(self, fence: MarkerFencing) -> None:
        self._loop = Loop()
        self._source = Cluster(self._loop, fence._source, fence._settings)
        self._target = Cluster(self._loop, fence._target, fence._settings)

    def __enter__(self) -> tuple[Loop, Cluster, Cluster]:
        return self._loop, self._source, self._target

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._target.close()
        self._loop.close()


async def _close(
    target: Cluster, own: Writer, closing: Mapping[str, Collection[TopicPartition]]
) -> dict[str, ProducerIdentity]:
    """Let markers be written: the identity of those of each transactional id."""
    replies = {
        transactional_id: start(_mark(target, transactional_id, own, partitions))
        for transactional_id, partitions in closing.items()
    }
    marked = {}
    for transactional_id, reply in replies.items():
        try:
            marked[transactional_id] = await reply
        except Fatal as error:  # nobody may fence it, and its partitions are copied all the same
            log.warning("not fenced", transactional_id=transactional_id, why=str(error))
    return marked


async def _mark(
    target: Cluster, transactional_id: str, own: Writer, partitions: Collection[TopicPartition]
) -> ProducerIdentity:
    """A marker with a higher epoch; with that of ``own``, where it is its id."""
    transactions = Transactions(target, transactional_id)
    mine = transactional_id == own.transactional_id
    identity = ProducerIdentity(own.producer_id, own.producer_epoch)
    for attempt in range(_ROUNDS):
        try:
            if not mine:
                identity = await transactions.init_producer_id(timeout_s=_WITHIN_S)
            await transactions.add_partitions(identity, partitions, timeout_s=_WITHIN_S)
            await transactions.end(identity, commit=False, timeout_s=_WITHIN_S)
        except (ConnectionLost, Refused) as error:
            replaced = isinstance(error, Refused) and error.code.name in _REPLACED
            if replaced and mine:
                raise Retriable(f"{error}: it is tried again with a new one") from error
            lost = isinstance(error, ConnectionLost)
            if attempt + 1 == _ROUNDS or not (replaced or lost):
                raise
        else:
            return identity
    raise AssertionError("the last round returns or raises")


def _fences(before: Before, marked: Mapping[str, ProducerIdentity]) -> dict[int, int]:
    """The epoch of the markers to be read, by producer id. An id that expired has another one now,
    whose marker closes nothing."""
    return {
        writer.producer_id: identity.epoch
        for writer in before.writers
        if (identity := marked.get(writer.transactional_id)) is not None
        and identity.producer_id == writer.producer_id
    }


def _resumed(
    source: Cluster,
    target: Cluster,
    at: TopicPartition,
    before: Before,
    fences: Mapping[int, int],
) -> Resumed | Retriable:
    stored = Stored(
        before.source_offset,
        before.target_offset,
        frozenset(writer.producer_id for writer in before.writers) | before.unfenced,
    )
    try:
        resumed = _reconciled(source, target, at, before, stored=stored, fences=fences)
    except Fatal as error:  # no right to read the target, say: then no fence was seen
        log.warning("not compared", partition=str(at), why=str(error))
        resumed = Resumed(reconcile(stored, (), (), {}), -1)
    except Retriable as error:
        log.warning("fenced later", partition=str(at), why=str(error))
        return error
    resume = resumed.resume
    log.info(
        "fenced" if resume.outcome is not Outcome.UNFENCED else "not fenced",
        partition=str(at),
        outcome=str(resume.outcome),
        producers=sorted(fences),
        not_repeated=resume.copied,
        repeated=resume.doubled_at_most,
    )
    return resumed


def _closed(target: Cluster, before: Before, fences: Mapping[int, int]) -> Closed | Retriable:
    """Once the markers are read."""
    records, awaited = 0, dict(fences)
    ids = {writer.producer_id for writer in before.writers}
    entries = Tail(
        target, before.target, before.target_offset, patience_s=_READ_WITHIN_S
    ).of_target(fences.keys())
    try:
        while awaited:
            entry = next(entries)
            if isinstance(entry, Record):
                records += entry.producer_id in ids
            elif isinstance(entry, Marker) and entry.producer_epoch >= awaited.get(
                entry.producer_id, inf
            ):
                del awaited[entry.producer_id]
    except Fatal as error:  # no right to read the target, say: then no fence was seen
        log.warning("not read", partition=str(before.target), why=str(error))
    except Retriable as error:
        return error
    return Closed(records, frozenset(ids - fences.keys() | awaited.keys()) | before.unfenced)


def _reconciled(
    source: Cluster,
    target: Cluster,
    at: TopicPartition,
    before: Before,
    *,
    stored: Stored,
    fences: Mapping[int, int],
) -> Resumed:
    tail = Tail(target, before.target, before.target_offset, patience_s=_READ_WITHIN_S)
    original = Tail(source, at, before.source_offset, patience_s=_READ_WITHIN_S)
    entries: Iterator[Record | Dropped | Marker] = iter(())
    if fences:
        entries = tail.of_target(fences.keys())
        entries = chain([next(entries)], entries)  # then it is known who stamps
    resume = reconcile(
        stored,
        entries,
        original.of_source(),
        fences,
        compare_timestamps=not tail.stamped,
        same_filter=before.compare,
    )
    return Resumed(resume, original.leader_epoch)


def _wait(
    loop: Loop,
    coroutine: Coroutine[Reply[Any], None, T],
    timeout_s: float,
    tried: str = "fence earlier writers on the target",
) -> T:
    try:
        return loop.wait(start(coroutine), timeout_s)
    except GaveUp as error:
        raise Retriable(f"could not {tried}: {error}") from error
