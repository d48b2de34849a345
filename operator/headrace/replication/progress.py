"""Stored progress of a partition, with its offset pairs and claims.

The topic ``mm2-headrace-progress.<source alias>.internal`` is compacted. The key names no namespace
and no flow: the same flow resumes on Kubernetes where standalone stopped, and two flows of one
source that write one target topic meet here.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import TypeAdapter

from headrace.api import LossAction, LossCause

# Which source offset became which target offset, of what a lane's partition has had acknowledged.
#
# A run is records whose offsets ascend by one on both sides: what is copied is one run until the
# source has a hole (compaction, a transaction's marker, a record that is left out).

T = TypeVar("T")

MOST_RUNS = 256
"""That are kept until they are taken, four times a second. Beyond, every second one is forgotten:
what lies between two that are kept is then not known."""


def few_enough(ascending: list[T], most: int) -> list[T]:
    """Shorten the list to so many, every second one at a time; the first and the last one stay."""
    while len(ascending) > most:
        del ascending[1:-1:2]
    return ascending


class ContiguousRange(NamedTuple):
    """``records`` records from ``source`` on, which are on the target from ``target`` on."""

    source: int
    target: int
    records: int
    stretch: int
    """Ranges with the same number have only each other's records, and forgotten records of this
    lane, between them on the target. If the distances of their offsets are equal, there are no
    gaps.
    """

    @property
    def last(self) -> tuple[int, int]:
        """Source and target offset of the last record."""
        return self.source + self.records - 1, self.target + self.records - 1

    def continues(self, last: tuple[int, int]) -> bool:
        """Whether its first record is the very next one on both sides."""
        return (self.source - 1, self.target - 1) == last

    def without(self, first: int) -> "ContiguousRange":
        """Return the range without its first records."""
        source, target = self.source + first, self.target + first
        return ContiguousRange(source, target, self.records - first, self.stretch)


class CopiedRuns:
    """Copied ranges of one open partition. Calls arrive in the order of offsets."""

    __slots__ = ("_runs", "_stretch", "records", "source", "target")

    def __init__(self) -> None:
        self._runs: list[ContiguousRange] = []
        self._stretch = 0
        self.source = self.target = self.records = 0
        """The range that continues. It is empty if all its records were taken. The ledger extends
        it without a call of ``add`` for each batch.
        """

    def add(self, source: int, target: int, records: int = 1) -> None:
        """Add records that the target has acknowledged."""
        count = self.records
        if source == self.source + count and target == self.target + count:
            self.records = count + records
            return
        if count:
            self._close()
        # Before the first range there is no gap; the number that it gets does not matter.
        self._stretch += target != self.target + count
        self.source, self.target, self.records = source, target, records

    def take(self) -> list[ContiguousRange]:
        """Return the ranges since the last call; a range that continues is returned in pieces."""
        if self.records:
            self._close()
            self.source, self.target = self.source + self.records, self.target + self.records
            self.records = 0
        runs, self._runs = self._runs, []
        return runs

    def _close(self) -> None:
        self._runs.append(ContiguousRange(self.source, self.target, self.records, self._stretch))
        few_enough(self._runs, MOST_RUNS)


# Pairs of offsets that progress keeps until they are safe as offset syncs. Pure. If a driver is
# killed, it is unknown which of its syncs arrived. The new owner writes them again, and also the
# syncs of records that the killed driver appended after its stored progress.

MOST_PAIRS = 256
"""Maximum number of pairs of a partition. Beyond it, every second pair is forgotten; translation
between two remaining pairs is conservative.
"""


@dataclass(frozen=True)
class OffsetPair:
    """A record of the source, and where its copy is on the target."""

    stretch: str
    """Value of the header ``STRETCH`` of its sync."""
    source_offset: int
    target_offset: int

    @property
    def offsets(self) -> tuple[int, int]:
        """Source and target offset."""
        return self.source_offset, self.target_offset


def with_runs(
    pairs: Iterable[OffsetPair], runs: Iterable[ContiguousRange], new_stretch: Callable[[], str]
) -> tuple[OffsetPair, ...]:
    """Return the pairs, with the first and the last pair of each later range added."""
    found = list(pairs)
    for run in runs:
        known = found[-1].target_offset + 1 - run.target if found else 0
        if known < run.records:
            _add(found, run.without(max(0, known)), new_stretch)
    return tuple(few_enough(found, MOST_PAIRS))


def _add(found: list[OffsetPair], run: ContiguousRange, new_stretch: Callable[[], str]) -> None:
    last = found[-1] if found else None
    follows = last is not None and run.target == last.target_offset + 1
    stretch = last.stretch if last is not None and follows else new_stretch()
    first, end = OffsetPair(stretch, run.source, run.target), OffsetPair(stretch, *run.last)
    if last is None or not run.continues(last.offsets):
        found.append(first)
    if end != found[-1]:
        found.append(end)


_VERSION, _IN_TRANSACTION, _PRESERVED = 1, 2, 3
_READABLE = (_VERSION, _IN_TRANSACTION, _PRESERVED)


@dataclass(frozen=True)
class ProgressKey:
    """One partition of the source, on its way into one topic of the target."""

    source_cluster_id: str
    topic: str
    partition: int
    target_topic: str

    def encode(self) -> bytes:
        """Canonical JSON: equal keys are equal bytes, or compaction would keep both."""
        return _encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a progress key; raise ``ValueError`` if it is none."""
        return _decode(cls, data)


@dataclass(frozen=True)
class Loss:
    """A loss of records of one partition.

    It stays in progress until the partition is reset, as later records hide it.
    """

    cause: LossCause
    first: int
    """The first offset that is lost: of the source or of the target, as the cause says."""
    last: int
    """The last one; below ``first`` when none is known."""
    time_ms: int
    """When it was noticed, Unix time."""
    lower_bound: bool = False
    """Whether later offsets may also be lost."""
    action: LossAction = LossAction.STOPPED
    """Action taken; a stopped partition waits for a user."""

    @property
    def unresolved(self) -> bool:
        """Whether the partition waits."""
        return self.action is LossAction.STOPPED

    @property
    def leaves_gap(self) -> bool:
        """Whether the copy lacks records since.

        It does not if everything was copied again after the target lost records, or if the source
        lost records that the copy has.
        """
        if self.unresolved:
            return True
        if self.cause in (LossCause.TARGET_TRUNCATED, LossCause.TARGET_RECREATED):
            return self.action is LossAction.CONTINUED
        return self.cause is not LossCause.SOURCE_DIVERGED


_MOST_EARLIER = 20
"""Losses that are kept one by one. Two of the oldest become one that covers both."""


def losses_before(loss: Loss, last: Loss | None, earlier: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return the losses before ``loss``; an unresolved one is replaced by its outcome."""
    if last is None or last.unresolved or last == loss:
        return earlier
    kept = (*earlier, last)
    if len(kept) <= _MOST_EARLIER:
        return kept
    seen: dict[tuple[LossCause, bool], int] = {}
    for n, one in enumerate(kept):  # there are fewer kinds than losses: two are of one kind
        if (first := seen.setdefault((one.cause, one.leaves_gap), n)) != n:
            covering = _covering(kept[first], one)
            return (*kept[:first], covering, *kept[first + 1 : n], *kept[n + 1 :])
    return kept


def _covering(one: Loss, other: Loss) -> Loss:
    first, last = min(one.first, other.first), max(one.last, other.last)
    return replace(other, first=first, last=last, lower_bound=one.lower_bound or other.lower_bound)


@dataclass(frozen=True)
class OwnerProducer:
    """The producer of the owner: what a fence of the next one has to close the partition to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def id(self) -> tuple[str, int]:
        """Return the part of the identity that stays the same from epoch to epoch."""
        return self.transactional_id, self.producer_id


@dataclass(frozen=True)
class Confirmed:
    """Offset at which the partition's topics last had the stored ids.

    Later records may belong to topics that were created again.
    """

    source_offset: int
    source_end: int
    target_offset: int


@dataclass(frozen=True)
class TargetSeen:
    """The end of a partition's acknowledged records on the target.

    While a leader of this epoch had the log, all records below the offset were acknowledged. If a
    later leader's log ends this epoch at a lower offset, the target has lost records, even if its
    log has grown past the offset since (KIP-320).
    """

    offset: int
    leader_epoch: int


@dataclass(frozen=True)
class Switch:
    """A fail-over: from here on the target's partition is the original instead of a copy."""

    time_ms: int
    """Unix time."""
    planned: bool
    """Whether the source was copied to its end."""
    source_end: int
    """End of the source's log; the highest end that was seen if the source did not respond."""
    target_end: int
    """End of the target's log after all producers of the flow were fenced."""
    accepted: tuple[Loss, ...] = ()
    """Losses of the partition that the user accepted with the fail-over."""


@dataclass(frozen=True)
class Progress:
    """Stored progress of a partition: where it resumes, and its owner."""

    source_topic_id: str
    source_offset: int
    """The next offset to copy: all below it is acknowledged on the target."""
    leader_epoch: int
    """Leader epoch of the last copied record; -1 if unknown."""
    target_topic_id: str
    target_offset: int
    """The next offset on the target after the last acknowledged record; without one, where its log
    ended when the partition was claimed first."""
    epoch: int
    """Epoch of the task that owns the partition. Each claim increases it; it never decreases."""
    owner: str
    """Task and driver incarnation, for people and for fencing."""
    source_end: int = 0
    """The highest end of the source's log that was seen; 0 when unknown."""
    confirmed: Confirmed | None = None
    """Confirmed end of the copy. None: the owner did not store it."""
    loss: Loss | None = None
    """The last loss."""
    earlier_losses: tuple[Loss, ...] = ()
    """Resolved losses before the last one, in the order in which they were noticed."""
    first_offset: int = -1
    """Offset at which ``spec.startFrom`` began the partition; -1 if unknown. While it is still the
    next offset, nothing was copied.
    """
    reset_ms: int = 0
    """The time of the last reset that was carried out, as the user gave it: Unix time."""
    tombstones_since_ms: int = 0
    """Since when nothing was copied, when that was for longer than the source keeps tombstones
    (Unix time); 0: never since the last reset."""
    writer: OwnerProducer | None = None
    """Producer of the owner. None: it cannot be fenced."""
    unfenced: tuple[int, ...] = ()
    """Producer ids of earlier owners that were not fenced, and may append more; -1: of some whose
    ids are not known."""
    unfenced_until_ms: int = 0
    """Unix time after which these append nothing; 0 if unknown."""
    target_seen: TargetSeen | None = None
    """End of the acknowledged records on the target. None: unknown."""
    fencing: tuple[OwnerProducer, ...] = ()
    """Earlier owners that ``writer`` is about to fence. Until they are fenced it appends nothing,
    and the next owner must fence them as well.
    """
    switch: Switch | None = None
    """The partition was failed over: nobody copies it."""
    pairs: tuple[OffsetPair, ...] = ()
    """Pairs that offset syncs may lack, in the order of offsets; a new owner writes them. The last
    pair belongs to the last record below ``target_offset``, or to a later one.
    """
    data_writer: OwnerProducer | None = None
    """Producer identity of the copy's data with ``offsets.mode: Preserved``. Every owner appends
    data with this producer id. ``writer`` and ``fencing`` then write the markers that fill gaps.
    None means that the target's offsets differ from the source's.
    """
    version: int = _VERSION
    """Rises only when an older headrace must not read it: that one leaves out fields that it does
    not know, and an older driver writes without them, so that a roll-back loses no position.

    2: written in a transaction, and no progress unless that was committed. An older headrace does
    not look, and would take what was aborted for copied.

    3: of a copy with its source's offsets. An older headrace would append to it with markers of its
    own, and no offset behind them would be the source's."""

    @property
    def in_transaction(self) -> bool:
        """Whether it counts only once a marker of its log says that it was committed."""
        return self.version == _IN_TRANSACTION

    def of_transaction(self) -> "Progress":
        """Return the progress in the version that is written in a transaction."""
        return replace(self, version=_IN_TRANSACTION)

    def of_no_transaction(self) -> "Progress":
        """Return the progress in the version of a record that counts without a transaction."""
        return replace(self, version=_VERSION if self.data_writer is None else _PRESERVED)

    def preserving(self, data_writer: OwnerProducer) -> "Progress":
        """Return the progress in the version of a copy that has its source's offsets."""
        return replace(self, data_writer=data_writer, version=_PRESERVED)

    @property
    def known_good(self) -> Confirmed:
        """Up to where these are positions of the topics that are named."""
        here = Confirmed(self.source_offset, self.source_end, self.target_offset)
        return self.confirmed or here

    @property
    def has_begun(self) -> bool:
        """Whether the partition is behind the offset at which it began."""
        return self.source_offset != self.first_offset

    @property
    def losses(self) -> tuple[Loss, ...]:
        """All losses since the partition was reset last."""
        return self.earlier_losses if self.loss is None else (*self.earlier_losses, self.loss)

    def with_loss(self, loss: Loss) -> "Progress":
        """Return the same with this loss as the last one."""
        earlier = losses_before(loss, self.loss, self.earlier_losses)
        return replace(self, loss=loss, earlier_losses=earlier)

    def encode(self) -> bytes:
        """Return the record's value, in JSON."""
        # Earlier versions of headrace require this field, which has no meaning.
        return _encode({**asdict(self), "filter_generation": 0})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record's value; raise ``ValueError`` for a version that headrace cannot read."""
        progress = _decode(cls, data)
        if progress.version not in _READABLE:
            raise ValueError(
                f"progress record of version {progress.version}, this headrace reads {_VERSION} "
                f"to {_PRESERVED}"
            )
        if (progress.version == _PRESERVED) != (progress.data_writer is not None):
            raise ValueError(
                f"progress record of version {progress.version} "
                f"with{'out' * (progress.data_writer is None)} a writer of data"
            )
        return progress


def _encode(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


_READERS: dict[type, TypeAdapter[Any]] = {cls: TypeAdapter(cls) for cls in (ProgressKey, Progress)}
"""Readers that also check types: another version or program may have written any value."""


def _decode(cls: type[T], data: bytes) -> T:
    try:
        decoded: T = _READERS[cls].validate_json(data, strict=True)
    except ValueError as error:
        raise ValueError(f"not a {cls.__name__} record: {error}") from error
    return decoded


Writers = Mapping[tuple[str, int], OwnerProducer]


def writers_after(writers: Writers, stored: Progress | None, progress: Progress) -> Writers:
    """Return the writers that may append once ``progress`` is read after ``stored``.

    A claim adds its own writer and the writers that it must fence. This includes a claim with an
    epoch that is too low to count, because its owner may not have found that out yet. A later
    record of the same owner without such writers says that they are fenced.
    """
    following = dict(writers)
    if stored is not None and stored.owner == progress.owner and not progress.fencing:
        for one in stored.fencing:
            following.pop(one.id, None)
    own = (progress.writer,) if progress.writer is not None else ()
    return following | {one.id: one for one in (*progress.fencing, *own)}
