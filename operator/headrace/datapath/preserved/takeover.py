"""Takeover of partitions with preserved offsets.

The calls wait, so a takeover needs its own thread, as other fences do.
"""

from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

from headrace.api import ClusterAccess, TopicPartition
from headrace.datapath.fence import MarkerFencing
from headrace.datapath.lane import Before, Closed, Filling, Resumed
from headrace.datapath.markers import COORDINATOR_S, new_epoch, wait_for
from headrace.datapath.preserved.holes import REBUILD, Filler, WrongOffset
from headrace.datapath.preserved.owner import (
    Closer,
    End,
    Openings,
    TaskProducers,
    data_producer,
    ends_of,
    identified,
    not_replicated,
)
from headrace.datapath.preserved.plan import Hole
from headrace.datapath.tail import Tail
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    EARLIEST,
    LATEST,
    ClusterClient,
    Reply,
    Transactions,
    delete_records,
    list_offsets,
    start,
)
from headrace.logs import get_logger
from headrace.replication import OwnerProducer
from headrace.replication.reconcile import Accounts, Dropped, Marker, Record, Resume, ResumeReason

# The target gets empty records at all offsets before the source's first offset, and deletes them.
# The records are in aborted transactions, so that read-committed consumers never see them.

TRANSACTION_OFFSETS = 1_000_000
"""Number of offsets that one transaction fills, which takes one or two seconds."""


async def pad(
    target: ClusterClient,
    owner: TaskProducers,
    at: TopicPartition,
    end: End,
    first: int,
    *,
    until_s: float = inf,
) -> None:
    """Fill a partition from its end to ``first``, and delete the records below ``first``.

    ``until_s`` is a time of the loop's clock.

    Raises:
        Filling: The partition is not completely filled at ``until_s``.
        Retriable: The filling must be repeated from the partition's end, which is never after
            ``first``.
    """
    filler = Filler(target, Transactions(target, owner.padding_id), owner.padding)
    for piece in Hole(end.offset, first).pieces(TRANSACTION_OFFSETS):
        for error in (await filler.fill({at: piece})).values():
            raise error
        if piece.next < first and target.loop.now_s() > until_s:
            raise Filling(
                at,
                piece.next,
                f"{at} on {target.name} is filled up to offset {first}, where its source begins: "
                f"{piece.next} so far",
            )
    # Leaders delete records only below the high watermark.
    for error in (await not_replicated(target, {at: first})).values():
        raise error
    for error in (await delete_records(target, {at: first})).failed.values():
        raise error


# Comparison of two logs, offset by offset, before a copy resumes. It has no side effects. A
# comparison of the logs' ends is not sufficient: after one additional marker, all following records
# would have wrong offsets.

Entry = Record | Dropped | Marker
"""Entry of ``Tail``, in the order of offsets. If an offset has no entry, compaction removed it."""


class Difference(NamedTuple):
    """First offset at which two logs differ, and a description of the difference."""

    offset: int
    what: str


class _Cursor:
    """Lookup of entries by ascending offset."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: Iterator[Entry] = iter(entries)
        self._entry: Entry | None = next(self._entries, None)

    def at(self, offset: int) -> Entry | None:
        """Return the entry at an offset, or None. Offsets must be requested in ascending order."""
        while self._entry is not None and self._entry.last < offset:
            self._entry = next(self._entries, None)
        return self._entry if self._entry is not None and self._entry.offset <= offset else None

    @property
    def following(self) -> Entry | None:
        """First entry after the requested offset, if that offset has no entry."""
        return self._entry

    def changes(self, offset: int, end: int) -> int:
        """Return the next offset at which the kind of entry may change.

        ``offset`` must be the offset that was requested last.
        """
        if self._entry is None:
            return end
        return self._entry.offset if self._entry.offset > offset else self._entry.last + 1


def first_difference(
    source: Iterable[Entry],
    target: Iterable[Entry],
    offsets: range,
    *,
    source_compacts: bool = False,
    target_compacts: bool = False,
    compare_timestamps: bool = True,
) -> Difference | None:
    """Return the first difference in these offsets, or None.

    Both logs must contain the whole range, apart from compacted records. A marker and an aborted
    record are equivalent, because no consumer sees them. If the source has no entry at an offset,
    the target may contain a copy of the next source record (``offsets.holes: Copies``).

    Args:
        source: Entries of the source.
        target: Entries of the target.
        offsets: Offsets to compare.
        source_compacts: Whether the source may have removed records after they were copied.
        target_compacts: Whether the target may have removed copied records.
        compare_timestamps: Whether timestamps must be equal.
    """
    ours, theirs = _Cursor(source), _Cursor(target)
    offset = offsets.start
    while offset < offsets.stop:
        original, copy = ours.at(offset), theirs.at(offset)
        if original is None and isinstance(copy, Record) and _repeats(copy, ours.following):
            what = ""
        else:
            what = _difference(original, copy, source_compacts, target_compacts, compare_timestamps)
        if what:
            return Difference(offset, what)
        offset = min(ours.changes(offset, offsets.stop), theirs.changes(offset, offsets.stop))
    return None


def _difference(
    original: Entry | None,
    copy: Entry | None,
    source_compacts: bool,
    target_compacts: bool,
    compare_timestamps: bool,
) -> str:
    """Return a description of the difference; empty if there is none."""
    if copy is None:
        return "" if target_compacts else "the target does not hold this offset"
    if isinstance(copy, Record) and isinstance(original, Record):
        return _other(original, copy, compare_timestamps)
    if isinstance(original, Record):
        return "the source holds a record, and the target a marker or an aborted record"
    if not isinstance(copy, Record) or (original is None and source_compacts):
        return ""
    instead = "none" if original is None else "a marker or an aborted record"
    return f"the target holds a record, and the source {instead}"


def _repeats(copy: Record, following: Entry | None) -> bool:
    return isinstance(following, Record) and not _other(following, copy, compare_timestamps=True)


def _other(original: Record, copy: Record, compare_timestamps: bool) -> str:
    for what in ("key", "value", "headers"):
        if getattr(original, what) != getattr(copy, what):
            return f"the {what} of the record differs"
    if compare_timestamps and original.timestamp_ms != copy.timestamp_ms:
        return "the timestamp of the record differs"
    return ""


_TIMEOUT_S = 10.0
_ENDS_S = 60.0
_PAD_S = 600.0
"""Time in seconds for all transactions that fill a partition, and for the deletion of their
records."""
_TRIED = "find where the copies of the target end"


@dataclass(frozen=True)
class Pair:
    """Partition of the source with its copy."""

    source: TopicPartition
    target: TopicPartition
    producer_id: int
    """Producer id of the copy's data, which never changes."""
    compare_from: int = 0
    """Offset below which this flow has already compared or copied the records."""
    source_compacts: bool = False
    target_compacts: bool = False


@dataclass(frozen=True)
class _Bounds:
    """Start and end offsets of one pair."""

    source_start: int
    source_end: int
    """Last stable offset of the source."""
    target_start: int


class Starts:
    """Offsets at which one owner's partitions resume.

    Both cluster clients must have the same loop. Calls run the loop while they wait.
    """

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        owner: TaskProducers,
        *,
        pad_s: float = inf,
    ) -> None:
        """Create the object.

        Args:
            source: Client of the source.
            target: Client of the target.
            owner: Producers of the owner.
            pad_s: Total time in seconds for filling partitions up to the source's first offset.
                Afterwards ``Filling`` reports the progress of each partition. At least one
                transaction of each partition is completed.
        """
        self._source, self._target, self._owner = source, target, owner
        self._pad_until_s = target.loop.now_s() + pad_s

    def of(self, pairs: Sequence[Pair]) -> dict[Pair, End | HeadraceError]:
        """Return the end of each pair's copy, at which it resumes, or an error.

        ``Fatal``, including ``WrongOffset``, requires a user's action. ``Retriable`` errors are
        retried.
        """
        ends = self._ends({pair.target: pair.producer_id for pair in pairs})
        bounds = self._bounds(pairs)
        found: dict[Pair, End | HeadraceError] = {}
        for pair in pairs:
            end, known = ends[pair.target], bounds[pair]
            if isinstance(end, HeadraceError):
                found[pair] = end
            elif isinstance(known, HeadraceError):
                found[pair] = known
            else:
                try:
                    found[pair] = self._start(pair, end, known)
                except HeadraceError as error:
                    found[pair] = error
        return found | self._without_heads(
            {
                pair: known.source_start
                for pair, known in bounds.items()
                if isinstance(known, _Bounds)
                and isinstance(found[pair], End)
                and known.target_start < known.source_start
                and not pair.target_compacts
            }
        )

    def _without_heads(self, starts: Mapping[Pair, int]) -> dict[Pair, HeadraceError]:
        """Delete records below these offsets, which the sources have deleted; return errors."""
        if not starts:
            return {}
        deleted = delete_records(self._target, {pair.target: at for pair, at in starts.items()})
        failed = wait_for(self._target.loop, deleted, _ENDS_S, _TRIED).failed
        return {pair: failed[pair.target] for pair in starts if pair.target in failed}

    def _ends(
        self, producers: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, End | HeadraceError]:
        asked = ends_of(self._target, producers)
        return wait_for(self._target.loop, asked, _ENDS_S, _TRIED)

    def _start(self, pair: Pair, end: End, bounds: _Bounds) -> End:
        at = pair.target
        if end.offset > bounds.source_end:
            raise WrongOffset(
                at,
                bounds.source_end,
                f"{at} on {self._target.name} ends at offset {end.offset}, but the committed "
                f"records of {pair.source} on {self._source.name} end at {bounds.source_end}: the "
                "source was truncated or created again, a fail-over has ended the copy, or another "
                f"client writes to the target; {REBUILD}",
            )
        if end.offset < bounds.source_start:
            return self._padded(pair, end, bounds)
        self._compare(pair, bounds, end.offset)
        return end

    def _bounds(self, pairs: Sequence[Pair]) -> dict[Pair, _Bounds | HeadraceError]:
        """Return the offsets of each pair, or an error.

        Call it after the target's ends were read, because the source's end must not be older.
        """
        sources, targets = [one.source for one in pairs], [one.target for one in pairs]
        starts = _offsets(self._source, sources, EARLIEST)
        stable = _offsets(self._source, sources, LATEST)
        copies = _offsets(self._target, targets, EARLIEST)
        found: dict[Pair, _Bounds | HeadraceError] = {}
        for pair in pairs:
            start, end, copy = starts[pair.source], stable[pair.source], copies[pair.target]
            failed = [one for one in (start, end, copy) if isinstance(one, HeadraceError)]
            if failed:
                found[pair] = failed[0]
            elif isinstance(start, int) and isinstance(end, int) and isinstance(copy, int):
                found[pair] = _Bounds(start, end, copy)
        return found

    def _padded(self, pair: Pair, end: End, bounds: _Bounds) -> End:
        """Fill a partition that contains no data yet up to the source's first offset."""
        target, at, first = self._target, pair.target, bounds.source_start
        if end.offset > bounds.target_start:
            tail = Tail(target, at, bounds.target_start, patience_s=_TIMEOUT_S)
            for entry in tail.of_source():
                if isinstance(entry, Record) and entry.offset < end.offset:
                    raise Fatal(
                        f"{at} on {target.name} holds records and ends at offset {end.offset}, and "
                        f"{pair.source} begins at {first}: what lies between was deleted before it "
                        f"was copied; {REBUILD}"
                    )
                if entry.last >= end.offset - 1:
                    break
        filled = pad(target, self._owner, at, end, first, until_s=self._pad_until_s)
        wait_for(target.loop, filled, _PAD_S, f"fill {at}")
        padded = self._ends({at: pair.producer_id})[at]
        if isinstance(padded, HeadraceError):
            raise padded
        if padded.offset != first:
            raise Retriable(f"{at} on {target.name} ends at {padded.offset}, not yet at {first}")
        return padded

    def _compare(self, pair: Pair, bounds: _Bounds, end: int) -> None:
        """Compare a copy with its source up to ``end``; raise ``WrongOffset`` if they differ.

        Retention may delete records that were not compared yet. A difference below the first offset
        of a log is ignored, and the comparison continues at that offset.
        """
        first = max(bounds.source_start, bounds.target_start, pair.compare_from)
        while first < end:
            difference = self._first_difference(pair, range(first, end))
            if difference is None:
                return
            first = self._first_common(pair)
            if first <= difference.offset:
                raise self._wrong(pair, difference)

    def _first_difference(self, pair: Pair, offsets: range) -> Difference | None:
        source = Tail(self._source, pair.source, offsets.start, patience_s=_TIMEOUT_S)
        target = Tail(self._target, pair.target, offsets.start, patience_s=_TIMEOUT_S)
        return first_difference(
            source.of_source(),
            target.of_source(),
            offsets,
            source_compacts=pair.source_compacts,
            target_compacts=pair.target_compacts,
        )

    def _first_common(self, pair: Pair) -> int:
        """Return the first offset that both logs still contain."""
        starts = (
            _offsets(self._source, [pair.source], EARLIEST)[pair.source],
            _offsets(self._target, [pair.target], EARLIEST)[pair.target],
        )
        first = 0
        for found in starts:
            if isinstance(found, HeadraceError):
                raise found
            first = max(first, found)
        return first

    def _wrong(self, pair: Pair, difference: Difference) -> WrongOffset:
        return WrongOffset(
            pair.target,
            difference.offset,
            f"{pair.target} on {self._target.name} is not as {pair.source} on "
            f"{self._source.name} from offset {difference.offset} on: {difference.what}. "
            "Possibly another client writes there, the topic existed before, the source was "
            "truncated or created again, or replicas of the target failed and its brokers wrote a "
            f"marker twice; stop such a client, then {REBUILD}",
        )


def _offsets(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], time: int
) -> dict[TopicPartition, int | HeadraceError]:
    """Return offsets for read-committed consumers, or an error for each partition."""
    listed = list_offsets(cluster, partitions, time, read_committed=True, timeout_s=_TIMEOUT_S)
    answers = wait_for(cluster.loop, listed, _ENDS_S, _TRIED)
    found: dict[TopicPartition, int | HeadraceError] = dict(answers.failed)
    return found | {at: one.offset for at, one in answers.found.items()}


# Take-over of partitions with preserved offsets. No marker fences earlier owners, because it would
# occupy an offset. All owners append data with the same producer id and its sequence (see
# ``owner``). The new owner raises the epochs of the transactional ids with which earlier owners
# write markers.

log = get_logger(__name__)

T = TypeVar("T")
PAD_S = 10.0
"""Time in seconds for which a take-over fills copies before it reports how far it has come."""
_RAISE_EPOCHS = "raise the epochs of earlier owners on the target"


class PreservedFencing(MarkerFencing):
    """Fencing for copies with preserved offsets."""

    def __init__(
        self, source: ClusterAccess, target: ClusterAccess, openings: Openings, impossible: str
    ) -> None:
        super().__init__(source, target, impossible=impossible)
        self._openings = openings

    def identify(self, transactional_id: str) -> OwnerProducer:
        """Return an identity with a new epoch, or the identity of an open lane.

        The epoch of an open lane is kept, because a new one would prevent the lane from filling
        holes.
        """
        self._require_transactions()
        with self._openings.taking_over(transactional_id):
            if (current := self._openings.current(transactional_id)) is not None:
                return current
            with self._clients() as (loop, _, target):
                asked = identified(target, transactional_id)
                owner = wait_for(loop, asked, 2 * COORDINATOR_S, _RAISE_EPOCHS)
            identity = owner.identities[0]
            writer = OwnerProducer(transactional_id, identity.producer_id, identity.epoch)
            self._openings.identified(writer, owner)
            return writer

    def data_writer(self, task: str) -> OwnerProducer:
        """Return the writer of data. Its epoch is not used: data have the partition's epoch."""
        name = f"headrace-{task}-data"
        with self._clients() as (loop, _, target):
            asked = data_producer(target, name)
            return OwnerProducer(name, wait_for(loop, asked, 2 * COORDINATOR_S, _RAISE_EPOCHS), 0)

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Resumed | HeadraceError]:
        with (
            self._openings.taking_over(own.transactional_id),
            self._clients() as (_, source, target),
        ):
            owner = self._openings.owner(own)
            found: dict[TopicPartition, Resumed | HeadraceError] = {}
            refused = _raise_epochs(target, own, partitions.values())
            closers, not_closing = _closers(target, partitions.values())
            refused |= not_closing
            pairs = {}
            for at, before in partitions.items():
                names = _names(own, before) | _data_id(before)
                why = next((refused[one] for one in sorted(names) if one in refused), None)
                if why is None:
                    pairs[_pair(at, before)] = before
                else:
                    found[at] = why
            starts = Starts(source, target, owner, pad_s=PAD_S).of(list(pairs))
            for pair, end in starts.items():
                if isinstance(end, End):
                    closer = closers.get(pair.producer_id)
                    self._openings.found(own, pair.target, end, closer)
                    found[pair.source] = _resumed(pairs[pair], end)
                else:
                    found[pair.source] = end
                log.info(
                    "taken over",
                    partition=str(pair.source),
                    why_not=str(end) if isinstance(end, HeadraceError) else "",
                    end=end.offset if isinstance(end, End) else -1,
                    stored=pairs[pair].source_offset,
                )
            return found

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Closed | Retriable]:
        """Fence the partitions with a marker, after which brokers also reject earlier owners' data.

        Nothing is copied afterwards.
        """
        with self._clients() as (_, _, target):
            for error in _raise_epochs(target, own, partitions.values()).values():
                log.warning("an earlier owner may write markers", why=str(error))
        by_data = {
            at: before._replace(
                writers=frozenset({before.data_writer} if before.data_writer else ())
            )
            for at, before in partitions.items()
        }
        return super().close(own, by_data)


def _names(own: OwnerProducer, before: Before) -> frozenset[str]:
    names = {writer.transactional_id for writer in before.writers}
    return frozenset(names - {own.transactional_id})


def _data_id(before: Before) -> frozenset[str]:
    return frozenset({before.data_writer.transactional_id} if before.data_writer else ())


def _raise_epochs(
    target: ClusterClient, own: OwnerProducer, partitions: Collection[Before]
) -> dict[str, Fatal]:
    """Raise the epochs of all earlier owners; return an error for each id without permission."""
    names = {name for before in partitions for name in _names(own, before)}
    return _of_each(target, partial(identified, target), names)[1]


def _closers(
    target: ClusterClient, partitions: Collection[Before]
) -> tuple[dict[int, Closer], dict[str, Fatal]]:
    """Return the closers by producer id, and an error for each id without permission.

    Afterwards no earlier owner can write markers with these ids. If an id has expired, its closer
    has another producer id, which fences nothing.
    """
    names = {name for before in partitions for name in _data_id(before)}
    found, refused = _of_each(target, partial(new_epoch, target), names)
    closers = {one.producer_id: Closer(name, one) for name, one in found.items()}
    return closers, refused


def _of_each(
    target: ClusterClient, raised: Callable[[str], Coroutine[Reply[Any], None, T]], names: Set[str]
) -> tuple[dict[str, T], dict[str, Fatal]]:
    replies = {name: start(raised(name)) for name in sorted(names)}
    found: dict[str, T] = {}
    refused: dict[str, Fatal] = {}

    async def all_of_them() -> None:
        for name, reply in replies.items():
            try:
                found[name] = await reply
            except Fatal as error:
                refused[name] = error

    if replies:
        wait_for(target.loop, all_of_them(), 2 * COORDINATOR_S, _RAISE_EPOCHS)
    return found, refused


def _pair(at: TopicPartition, before: Before) -> Pair:
    if before.data_writer is None:
        raise Fatal(f"internal error: {at} would be taken over without a writer of its data")
    return Pair(
        at,
        before.target,
        before.data_writer.producer_id,
        before.source_offset if before.compare else 0,
        before.source_compacts,
        before.target_compacts,
    )


def _resumed(before: Before, end: End) -> Resumed:
    """Return the target's end as the offset at which the copy resumes.

    The leader epoch of the source's record before that end is unknown.
    """
    copied, nothing = max(0, end.offset - before.source_offset), Accounts(0, 0, 0)
    resume = Resume(
        ResumeReason.AGREES, end.offset, end.offset, nothing, Accounts(copied, 0, 0), copied=copied
    )
    return Resumed(resume, -1)
