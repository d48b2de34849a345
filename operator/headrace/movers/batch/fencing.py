"""Closes partitions of the target to those who wrote them before, and finds where to resume.

A marker of an empty transaction, with the next epoch of a writer's producer id, makes brokers
refuse all that this writer sends later. It closes a partition once it is *read there*, below the
high watermark: what a coordinator answers is a promise.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from itertools import chain
from math import inf

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import ClusterClient, EventLoop, ProducerIdentity, epoch_ends
from headrace.logs import get_logger
from headrace.movers.batch.leftovers import commit_leftovers
from headrace.movers.batch.marking import (
    COORDINATOR_S,
    LEADER_S,
    READ_S,
    end_transactions,
    failed_with,
    log_ends_of,
    new_epoch,
    unread_markers,
    wait_for,
    write_markers,
)
from headrace.movers.batch.requirements import NoTransactions
from headrace.movers.batch.tail import Tail
from headrace.movers.lane import Before, Closed, Resumed
from headrace.replication import OwnerProducer, RecordChanges
from headrace.replication.reconcile import (
    Dropped,
    Marker,
    Record,
    ResumeReason,
    StoredProgress,
    reconcile,
)

log = get_logger(__name__)


class MarkerFencing:
    """Fencing by transaction markers. Each call opens connections of its own, and waits."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        changes: RecordChanges | None = None,
        impossible: str = "",
    ) -> None:
        """Accept both clusters, and the changes that the flow makes to records.

        ``impossible`` is why the target cannot fence writers, or empty.
        """
        self._source, self._target, self._changes = source, target, changes
        self.impossible = impossible
        """Reason why the target cannot fence writers, or empty."""

    def _clients(self) -> "FenceClients":
        return FenceClients(self._source, self._target)

    def identify(self, transactional_id: str) -> OwnerProducer:
        self._require_transactions()
        with self._clients() as (loop, _, target):
            asked = new_epoch(target, transactional_id)
            identity = wait_for(loop, asked, 2 * COORDINATOR_S)
            return OwnerProducer(transactional_id, identity.producer_id, identity.epoch)

    def _require_transactions(self) -> None:
        if self.impossible:
            raise NoTransactions(self.impossible)

    def data_writer(self, task: str) -> OwnerProducer | None:
        return None

    def end_transactions(self, transactional_ids: Set[str]) -> None:
        if self.impossible:  # a target without a coordinator has no transactions
            return
        with self._clients() as (loop, _, target):
            asked = end_transactions(target, transactional_ids)
            wait_for(loop, asked, 2 * COORDINATOR_S, "end the transactions of earlier owners")

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | Retriable]:
        with self._clients() as (loop, _, target):
            asked = epoch_ends(target, epochs, timeout_s=LEADER_S)
            tried = "find where the logs of the target end"
            answers = wait_for(loop, asked, 2 * LEADER_S, tried)
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
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Resumed | HeadraceError]:
        with self._clients() as (_, source, target):
            put_off, marked = _closed_by_markers(target, own, partitions.values())
            return {
                at: put_off.get(before.target)
                or _resumed(
                    source, target, at, before, _fences(before, marked), changes=self._changes
                )
                for at, before in partitions.items()
            }

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Closed | Retriable]:
        with self._clients() as (_, _, target):
            put_off, marked = _closed_by_markers(target, own, partitions.values())
            return {
                at: put_off.get(before.target) or _closed(target, before, _fences(before, marked))
                for at, before in partitions.items()
            }


def _closed_by_markers(
    target: ClusterClient, own: OwnerProducer, partitions: Collection[Before]
) -> tuple[dict[TopicPartition, Retriable], dict[str, ProducerIdentity]]:
    """Write markers, except for partitions that must be retried; return both.

    The markers of progress partitions are read.
    """
    put_off, ends = log_ends_of(target, partitions)
    reachable = [before for before in partitions if before.target not in put_off]
    leftovers = commit_leftovers(target, own, reachable)
    put_off |= wait_for(target.loop, leftovers, 4 * COORDINATOR_S)
    closing: dict[str, set[TopicPartition]] = {}
    progress: set[TopicPartition] = set()
    for before in partitions:
        for writer in before.writers if before.target not in put_off else ():
            closing.setdefault(writer.transactional_id, set()).update(before.closed)
            progress |= before.closed - {before.target}
    if not closing:
        return put_off, {}
    written = write_markers(target, own, closing)
    marked = wait_for(target.loop, written, 4 * COORDINATOR_S)
    unread = unread_markers(target, ends, closing, marked, progress)
    return put_off | failed_with(partitions, unread), marked


class FenceClients:
    """A loop, and clients of both clusters, for as long as a call takes."""

    def __init__(self, source: ClusterAccess, target: ClusterAccess) -> None:
        self._loop = EventLoop()
        self._source = ClusterClient(self._loop, source)
        self._target = ClusterClient(self._loop, target)

    def __enter__(self) -> tuple[EventLoop, ClusterClient, ClusterClient]:
        return self._loop, self._source, self._target

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._target.close()
        self._loop.close()


def _fences(before: Before, marked: Mapping[str, ProducerIdentity]) -> dict[int, int]:
    """Return the epoch of the markers to be read, by producer id.

    An expired id has been replaced by another one, whose marker closes nothing.
    """
    return {
        writer.producer_id: identity.epoch
        for writer in before.writers
        if (identity := marked.get(writer.transactional_id)) is not None
        and identity.producer_id == writer.producer_id
    }


def _resumed(
    source: ClusterClient,
    target: ClusterClient,
    at: TopicPartition,
    before: Before,
    fences: Mapping[int, int],
    *,
    changes: RecordChanges | None,
) -> Resumed | Retriable:
    stored = StoredProgress(
        before.source_offset,
        before.target_offset,
        frozenset(writer.producer_id for writer in before.writers) | before.unfenced,
    )
    try:
        resumed = _reconciled(
            source, target, at, before, stored=stored, fences=fences, changes=changes
        )
    except Fatal as error:  # no right to read the target, say: then no fence was seen
        log.warning("not compared", partition=str(at), why=str(error))
        resumed = Resumed(reconcile(stored, (), (), {}), -1)
    except Retriable as error:
        log.warning("fenced later", partition=str(at), why=str(error))
        return error
    resume = resumed.resume
    log.info(
        "fenced" if resume.outcome is not ResumeReason.UNFENCED else "not fenced",
        partition=str(at),
        outcome=str(resume.outcome),
        producers=sorted(fences),
        not_repeated=resume.copied,
        repeated=resume.doubled_at_most,
    )
    return resumed


def _closed(target: ClusterClient, before: Before, fences: Mapping[int, int]) -> Closed | Retriable:
    """Once the markers are read."""
    records, awaited = 0, dict(fences)
    ids = {writer.producer_id for writer in before.writers}
    entries = Tail(target, before.target, before.target_offset, patience_s=READ_S).of_target(
        fences.keys()
    )
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
    source: ClusterClient,
    target: ClusterClient,
    at: TopicPartition,
    before: Before,
    *,
    stored: StoredProgress,
    fences: Mapping[int, int],
    changes: RecordChanges | None,
) -> Resumed:
    tail = Tail(target, before.target, before.target_offset, patience_s=READ_S)
    original = Tail(source, at, before.source_offset, patience_s=READ_S)
    entries: Iterator[Record | Dropped | Marker] = iter(())
    if fences:
        entries = tail.of_target(fences.keys())
        entries = chain([next(entries)], entries)  # then it is known who stamps
    resume = reconcile(
        stored,
        entries,
        _changed(original.of_source(), at.topic, changes),
        fences,
        compare_timestamps=not tail.stamped,
        same_filter=before.compare,
    )
    return Resumed(resume, original.leader_epoch)


def _changed(
    entries: Iterator[Record | Dropped], topic: str, changes: RecordChanges | None
) -> Iterator[Record | Dropped]:
    """Yield the source's records as the target got them: those that are not copied are dropped."""
    if changes is None or not changes.concern(topic):
        yield from entries
        return
    for entry in entries:
        if not isinstance(entry, Record):
            yield entry
        elif (headers := changes.apply(entry.headers)) is None:
            yield Dropped(entry.offset, entry.last)
        else:
            yield entry._replace(headers=headers)
