"""Owners of partitions with preserved offsets: producer ids, ends and openings.

All owners append data with the same producer id, in the partition's current epoch, and with its
next sequence. A batch is therefore appended only after the batch that it follows on the source,
whichever owner sends it. A second owner that sends it gets an error. Data need no fence and no
marker, which would occupy an offset.

A marker can be appended anywhere. An owner therefore writes markers with transactional ids of its
task. The next owner first raises the epochs of those ids, so that the earlier owner can write no
more markers.

An owner's first marker has the data's producer id with a higher epoch, so that batches of earlier
owners are rejected after it. The check of the sequence would not suffice: a batch whose first
record compaction has removed since it was read could be appended after the marker. Before the
marker, all owners give each offset the same sequence.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.datapath.append import CopiesLost
from headrace.datapath.markers import new_epoch
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    ProducerIdentity,
    ProducerState,
    Transactions,
    UnsupportedBroker,
    describe_producers,
    list_offsets,
    log_ends,
    sequence_after,
    start,
)
from headrace.replication import OwnerProducer

_LEADER_S = 10.0
_REPLICATED_TIMEOUT_S = 20.0
_POLL_S = 0.01


class End(NamedTuple):
    """End of one partition of the target."""

    offset: int
    """Offset after the last record. All in-sync replicas have all records below it."""
    identity: ProducerIdentity
    """Identity for data, in the partition's current epoch, so that the broker checks the sequence.
    The first batch of a newer epoch would have sequence 0 and could be appended anywhere."""
    sequence: int
    """Sequence number of the next batch of data."""
    known: bool
    """Whether the leader has a state of the producer. If not, it accepts any first sequence."""


async def ends_of(
    target: ClusterClient, producers: Mapping[TopicPartition, int]
) -> dict[TopicPartition, End | HeadraceError]:
    """Return the ends of the target's partitions.

    ``producers`` contains the producer id of each partition's data. The producers' states are read
    first, then the leaders' log ends. If an earlier owner's batch is appended between the two
    reads, the sequence that was read is outdated, and the broker rejects this owner's next batch.
    In the opposite order, the log end would be outdated, and the broker would accept the batch. The
    leader's log end is used, because a high watermark may be below records that the state already
    includes.
    """
    try:
        states = await describe_producers(target, producers, timeout_s=_LEADER_S)
    except UnsupportedBroker as error:
        raise UnsupportedBroker(f"offsets: Preserved is not possible here: {error}") from error
    epochs = {at: _leader_epoch(target, at) for at in producers}
    ends = await log_ends(target, states.found, timeout_s=_LEADER_S)
    found: dict[TopicPartition, End | HeadraceError] = {**states.failed, **ends.failed}
    waiting = {at: end.end_offset for at, end in ends.found.items()}
    late = await not_replicated(target, waiting)
    for at, offset in waiting.items():
        if (why := late.get(at)) is not None:
            found[at] = why
        elif _leader_epoch(target, at) != epochs[at]:
            found[at] = Retriable(f"the leader of {at} on {target.name} moved")
        else:
            found[at] = _end(at, offset, producers[at], states.found[at])
    return found


def _end(
    at: TopicPartition, offset: int, producer_id: int, states: Collection[ProducerState]
) -> End | HeadraceError:
    for state in states:
        if state.current_txn_start_offset >= 0:
            return Retriable(
                f"a transaction of producer id {state.producer_id} is open on {at} since offset "
                f"{state.current_txn_start_offset}: its marker was lost, or another client writes "
                "there"
            )
    own = next((one for one in states if one.producer_id == producer_id), None)
    if own is None:
        return End(offset, ProducerIdentity(producer_id, 0), first_sequence(offset), known=False)
    sequence = 0 if own.last_sequence < 0 else sequence_after(own.last_sequence, 1)
    return End(offset, ProducerIdentity(producer_id, own.producer_epoch), sequence, known=True)


def first_sequence(offset: int) -> int:
    """Return the sequence at ``offset`` of a producer that the leader does not know.

    Brokers accept any first sequence, and check the following ones. All owners must therefore begin
    with the same one.
    """
    return sequence_after(0, offset)


async def not_replicated(
    target: ClusterClient, ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, HeadraceError]:
    """Wait until the high watermarks reach these ends; return an error for each that does not.

    A partition also fails if its high watermark exceeds the end.
    """
    loop = target.loop
    deadline_s = loop.now_s() + _REPLICATED_TIMEOUT_S
    failed: dict[TopicPartition, HeadraceError] = {}
    waiting = dict(ends)
    while waiting:
        listed = await list_offsets(target, waiting, LATEST, timeout_s=_LEADER_S)
        failed |= listed.failed
        for at, found in listed.found.items():
            if found.offset > waiting[at]:
                failed[at] = Retriable(
                    f"{at} on {target.name} grew from {waiting[at]} to {found.offset} meanwhile"
                )
        done = {at for at, found in listed.found.items() if found.offset >= waiting[at]}
        waiting = {at: end for at, end in waiting.items() if at not in done | failed.keys()}
        if waiting and loop.now_s() > deadline_s:
            late = Retriable(f"the replicas of {target.name} lag behind their leaders")
            return failed | dict.fromkeys(waiting, late)
        if waiting:
            await loop.sleep(_POLL_S)
    return failed


async def copies_lost(
    target: ClusterClient, acknowledged: Mapping[TopicPartition, int]
) -> dict[TopicPartition, HeadraceError]:
    """Return errors of partitions whose leader lacks records below these offsets.

    Partitions with an unreachable leader are included. An unclean election may have lost the
    producer's state together with the records. The next batch would then be appended with any
    sequence, at a wrong offset.
    """
    ends = await log_ends(target, acknowledged, timeout_s=_LEADER_S)
    lost = {
        at: CopiesLost(
            f"{at} on {target.name} ends at offset {found.end_offset}, but all below "
            f"{acknowledged[at]} was acknowledged: those records no longer exist, and are copied "
            "again (possible causes: an unclean election, or a disk that was lost or restored)"
        )
        for at, found in ends.found.items()
        if found.end_offset < acknowledged[at]
    }
    return {**ends.failed, **lost}


def _leader_epoch(target: ClusterClient, at: TopicPartition) -> int:
    known = target.view.leadership(at)
    return -1 if known is None else known.epoch


HELPERS = 3
"""Number of additional transactional ids for holes. Each writes the marker of one offset of a hole
at the same time."""
_PADDING = "padding"
_RETRY_INTERVAL_S = 0.002
"""Delay before a transaction request is repeated, in seconds. A coordinator accepts no transaction
while it writes the markers of the last one, which takes one or two milliseconds. Each marker of a
hole needs its own transaction, so each may be delayed."""


class Closer(NamedTuple):
    """Producer identity whose first marker fences the data that earlier owners have sent.

    A partition in which this epoch exists is fenced already: either the coordinator has ended an
    earlier transaction there with this epoch, or no earlier owner used the id. A fenced partition
    must get no second marker. After a second marker, the broker would expect the next sequence of
    data instead of 0.
    """

    transactional_id: str
    identity: ProducerIdentity
    """Producer id with which data is written, and a producer epoch that no earlier owner used."""


@dataclass(frozen=True)
class TaskProducers:
    """Transactional ids of a task, with their producer identities in this owner's epoch."""

    ids: Sequence[str]
    """Transactional ids for holes."""
    identities: Sequence[ProducerIdentity]
    padding_id: str
    """Transactional id for filling a partition before its copy begins. Holes of other partitions
    may be filled at the same time."""
    padding: ProducerIdentity

    def transactions(self, cluster: ClusterClient) -> list[Transactions]:
        """Return the transactions of the ids for holes."""
        return [Transactions(cluster, one, again_s=_RETRY_INTERVAL_S) for one in self.ids]


async def identified(target: ClusterClient, name: str) -> TaskProducers:
    """Return the producers of a new owner, with a higher epoch than any earlier owner.

    All earlier transactions of these ids have ended when the call returns. A marker may be missing
    in partitions without a leader.
    """
    holes = [name, *(f"{name}-holes-{number}" for number in range(1, HELPERS + 1))]
    ids = [*holes, f"{name}-{_PADDING}"]
    replies = [start(new_epoch(target, one)) for one in ids]
    *identities, padding = [await reply for reply in replies]
    return TaskProducers(holes, identities, ids[-1], padding)


async def data_producer(target: ClusterClient, data_id: str) -> int:
    """Return the producer id for data of partitions that were never written.

    The id is the same for all callers within a week (``transactional.id.expiration.ms``). A
    partition keeps its producer id permanently, because its progress stores the id.
    """
    return (await new_epoch(target, data_id)).producer_id


class Opening(NamedTuple):
    """State from which a lane begins to write one partition of the target. It is used once."""

    owner: TaskProducers
    end: End
    closer: Closer | None
    """Closer of the partition; None if the data's transactional id has expired, so that the
    partition cannot be fenced."""


class Openings:
    """Openings of one flow's mover. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taking_over: dict[str, threading.Lock] = {}
        self._owners: dict[OwnerProducer, TaskProducers] = {}
        self._ends: dict[tuple[OwnerProducer, TopicPartition], tuple[End, Closer | None]] = {}
        self._used: set[OwnerProducer] = set()

    def taking_over(self, name: str) -> threading.Lock:
        """Return the lock to hold during a takeover by the task with this transactional id.

        An abandoned takeover of the same task may still be filling a partition.
        """
        with self._lock:
            return self._taking_over.setdefault(name, threading.Lock())

    def current(self, name: str) -> OwnerProducer | None:
        """Return the writer of an open lane with this transactional id, or None.

        A takeover must not give this writer a new epoch, because the open lane could then no longer
        fill holes.
        """
        with self._lock:
            return next((one for one in self._used if one.transactional_id == name), None)

    def identified(self, writer: OwnerProducer, owner: TaskProducers) -> None:
        """Record a new owner of a transactional id. Earlier epochs of the id become unusable."""
        with self._lock:
            for one in [one for one in self._owners if one.id == writer.id]:
                del self._owners[one]
                self._ends = {key: end for key, end in self._ends.items() if key[0] != one}
            self._owners[writer] = owner

    def owner(self, writer: OwnerProducer) -> TaskProducers:
        """Return the producers of a writer; raise ``Retriable`` if its epoch was replaced."""
        with self._lock:
            if (owner := self._owners.get(writer)) is None:
                raise Retriable(f"{writer.transactional_id} has another epoch by now")
            return owner

    def found(
        self, writer: OwnerProducer, at: TopicPartition, end: End, closer: Closer | None
    ) -> None:
        """Record the end of a partition to which no other owner can write."""
        with self._lock:
            self._ends[writer, at] = end, closer

    def begin(self, writer: OwnerProducer, at: TopicPartition) -> Opening:
        """Remove and return the opening of a partition. The writer is in use until ``close``.

        Raises:
            Fatal: No takeover has found the partition's end.
        """
        with self._lock:
            owner, found = self._owners.get(writer), self._ends.pop((writer, at), None)
            if owner is None or found is None:
                raise Fatal(f"internal error: {at} would be written without a take-over")
            self._used.add(writer)
            return Opening(owner, *found)

    def close(self, writer: OwnerProducer) -> None:
        """Record that no lane uses the writer any more."""
        with self._lock:
            self._used.discard(writer)
