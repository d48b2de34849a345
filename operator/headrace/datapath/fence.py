"""Fence of earlier writers, and search for the offset to resume at.

The marker of an empty transaction, with the next epoch of a writer's producer id, makes brokers
reject everything that this writer sends later. The fence is complete once the marker was read from
the partition, below the high watermark. A coordinator's response does not guarantee that.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import suppress
from itertools import chain
from math import inf

from headrace.api import ClusterAccess, TopicPartition
from headrace.datapath.lane import Before, Closed, Resumed
from headrace.datapath.markers import (
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
from headrace.datapath.tail import Tail
from headrace.errors import Fatal, GaveUp, HeadraceError, Retriable, Unreachable
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    ConnectionSettings,
    EventLoop,
    ProducerIdentity,
    Reply,
    RequestRefused,
    Transactions,
    UnsupportedBroker,
    epoch_ends,
    list_offsets,
    start,
)
from headrace.logs import get_logger
from headrace.replication import OwnerProducer, RecordChanges
from headrace.replication.reconcile import (
    Dropped,
    Marker,
    Record,
    ResumeReason,
    StoredProgress,
    reconcile,
)

_CONNECT_S = 10.0
"""Time for a connection, in seconds. An unreachable broker delays the first task by this time."""
_COORDINATOR_S = 15.0
"""Time to find a coordinator, in seconds. The first request makes the cluster create its
transaction topic, which takes one or two seconds."""
_ALL_S = 60.0
_TRANSACTIONS = "__transaction_state"


class NoTransactions(Fatal):
    """The target cannot create the topic of its transactions."""


def check_clusters(
    source: ClusterAccess, target: ClusterAccess, *, coordinator_s: float = _COORDINATOR_S
) -> None:
    """Check the versions of both clusters, and whether the target can fence writers.

    Unreachable brokers, and brokers that start later, are not checked. The whole source may be
    unreachable, because a fail-over after a disaster fences writers without it. A missing
    permission is no error here, because the mover then copies without fencing writers.

    Raises:
        UnsupportedBroker: A broker's version is too old.
        NoTransactions: The target cannot fence writers.
        Retriable: No broker of the target responds.
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
    """Check the version of each reachable broker. Each new connection checks it."""
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
        return  # a takeover tries again, and reports the error


# Leftovers: records that were committed, but whose partition has no commit marker. Brokers lose the
# marker of a partition that has no leader at the commit (probably KAFKA-20734; seen on 4.3.1). The
# last stable offset stays before such records, and the next abort of their producer drops them.
# All records below the target offset of committed progress were committed.

log = get_logger(__name__)

_POLL_S = 0.05


async def commit_leftovers(
    target: ClusterClient, own: OwnerProducer, partitions: Collection[Before]
) -> dict[TopicPartition, Retriable]:
    """Write the commit markers that committed records of earlier owners have lost.

    Otherwise the marker of the fence would abort them. Return the errors of partitions that must be
    retried, by partition of the target.
    """
    ours = {
        before.target: before
        for before in partitions
        if before.progress is not None and before.writers
    }
    open_, failed = await _open(target, ours)
    if not open_:
        return failed_with(ours.values(), failed)
    log.warning("committed records are in an open transaction", partitions=sorted(map(str, open_)))
    closing: dict[str, set[TopicPartition]] = {}
    for at in open_:
        for writer in ours[at].writers:
            closing.setdefault(writer.transactional_id, set()).add(at)
    await write_markers(target, own, closing, commit=True)
    deadline_s = target.loop.now_s() + READ_S
    while open_ and target.loop.now_s() < deadline_s:
        await target.loop.sleep(_POLL_S)
        open_, failed = await _open(target, ours)
    still = {at: Retriable(f"a transaction is open below offset {open_[at]}") for at in open_}
    return failed_with(ours.values(), {**failed, **still})


async def _open(
    target: ClusterClient, ours: Mapping[TopicPartition, Before]
) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, HeadraceError]]:
    """Return partitions with an open transaction below their stored target offset, and errors.

    The first mapping contains that target offset.
    """
    ends = await list_offsets(target, ours, LATEST, read_committed=True, timeout_s=LEADER_S)
    return {
        at: ours[at].target_offset
        for at, end in ends.found.items()
        if end.offset < ours[at].target_offset
    }, ends.failed


class MarkerFencing:
    """Fencing by transaction markers. Each call opens its own connections, and waits."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        changes: RecordChanges | None = None,
        impossible: str = "",
    ) -> None:
        """Create the object.

        Args:
            source: Access to the source.
            target: Access to the target.
            changes: Changes of the flow to records, or None.
            impossible: Reason why the target cannot fence writers, or empty.
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
    """Write markers. Return errors of partitions to retry, and the identities in the markers.

    Errors are by partition of the target, and identities by transactional id.
    An error is also returned for a partition whose progress partition lacks its marker.
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
    """Event loop and clients of both clusters for one call."""

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
    """Return the epoch of the fence marker to find in the log, by the id of the fenced producer.

    The coordinator replaces an expired producer id with another one. The marker of the new id does
    not fence the old id.
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
    except Fatal as error:  # for example no permission to read the target
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
    """Read a partition until its markers were found, and return the result."""
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
    except Fatal as error:  # for example no permission to read the target
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
        entries = chain([next(entries)], entries)  # the first entry sets ``tail.stamped``
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
    """Yield the source's records with the flow's changes. Filtered records become ``Dropped``."""
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
