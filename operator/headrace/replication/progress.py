"""Stored progress of a partition, with its offset pairs and claims.

The topic ``mm2-headrace-progress.<source alias>.internal`` is compacted. The key contains no
namespace and no flow. A flow on Kubernetes therefore resumes where it stopped standalone, and two
flows of one source that write one target topic detect each other.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import TypeAdapter

from headrace.api import LossAction, LossCause

# Ranges of copied records, with their source and target offsets. In a range, offsets ascend by one
# on both clusters. All copied records form one range until the source has a gap: compaction, a
# transaction marker, or a record that is left out.

T = TypeVar("T")

MAX_RUNS = 256
"""Maximum number of ranges between two calls of ``take``, which happen four times a second.

If there are more, every second range is forgotten. The records between two kept ranges are then
unknown.
"""


def thin_out(ascending: list[T], limit: int) -> list[T]:
    """Shorten a list to ``limit`` entries by removing every second one, repeatedly.

    The first and the last entry are kept.
    """
    while len(ascending) > limit:
        del ascending[1:-1:2]
    return ascending


class ContiguousRange(NamedTuple):
    """Copied records from source offset ``source`` on, with target offsets from ``target`` on."""

    source: int
    target: int
    records: int
    contiguity_id: int
    """Number that two ranges share if the target has only copied records between them.

    Some of these records may be in forgotten ranges. If the two ranges are equally far apart on the
    source and on the target, the source has no gap between them.
    """

    @property
    def last(self) -> tuple[int, int]:
        """Source and target offset of the last record."""
        return self.source + self.records - 1, self.target + self.records - 1

    def continues(self, last: tuple[int, int]) -> bool:
        """Return True if the range starts immediately after the offsets of ``last``."""
        return (self.source - 1, self.target - 1) == last

    def without(self, first: int) -> "ContiguousRange":
        """Return the range without its ``first`` records."""
        source, target = self.source + first, self.target + first
        return ContiguousRange(source, target, self.records - first, self.contiguity_id)


class CopiedRuns:
    """Copied ranges of one open partition. Records must be added in the order of offsets."""

    __slots__ = ("_contiguity_id", "_runs", "records", "source", "target")

    def __init__(self) -> None:
        self._runs: list[ContiguousRange] = []
        self._contiguity_id = 0
        self.source = self.target = self.records = 0
        """First source offset, first target offset and number of records of the open range.

        Acknowledged records extend the open range. It is empty if ``take`` has returned all its
        records. The ledger changes these fields directly, because a call of ``add`` for each batch
        costs more.
        """

    def add(self, source: int, target: int, records: int = 1) -> None:
        """Add records that the target has acknowledged."""
        count = self.records
        if source == self.source + count and target == self.target + count:
            self.records = count + records
            return
        if count:
            self._close()
        # Before the first range there is no gap, and its number does not matter.
        self._contiguity_id += target != self.target + count
        self.source, self.target, self.records = source, target, records

    def take(self) -> list[ContiguousRange]:
        """Return the ranges since the last call. A range that continues is returned in pieces."""
        if self.records:
            self._close()
            self.source, self.target = self.source + self.records, self.target + self.records
            self.records = 0
        runs, self._runs = self._runs, []
        return runs

    def _close(self) -> None:
        self._runs.append(
            ContiguousRange(self.source, self.target, self.records, self._contiguity_id)
        )
        thin_out(self._runs, MAX_RUNS)


# Pairs of offsets that progress keeps until they are stored as offset syncs. No I/O. If a driver is
# killed, it is unknown which of its syncs arrived. The new owner writes them again, and also the
# syncs of records that the killed driver appended after its stored progress.

MAX_PAIRS = 256
"""Maximum number of pairs of a partition.

If there are more, every second pair is forgotten. The translation between two kept pairs is
conservative.
"""


@dataclass(frozen=True)
class OffsetPair:
    """Offset of a source record, and offset of its copy on the target."""

    stretch: str
    """Contiguity id, as in the header ``STRETCH`` of the pair's offset sync. The field name is
    stored."""
    source_offset: int
    target_offset: int

    @property
    def offsets(self) -> tuple[int, int]:
        """Source and target offset."""
        return self.source_offset, self.target_offset


def with_runs(
    pairs: Iterable[OffsetPair],
    runs: Iterable[ContiguousRange],
    new_contiguity_id: Callable[[], str],
) -> tuple[OffsetPair, ...]:
    """Return the pairs, extended by the first and the last pair of each range.

    Records up to the last of ``pairs`` are left out of the ranges.
    """
    found = list(pairs)
    for run in runs:
        known = found[-1].target_offset + 1 - run.target if found else 0
        if known < run.records:
            _add(found, run.without(max(0, known)), new_contiguity_id)
    return tuple(thin_out(found, MAX_PAIRS))


def _add(
    found: list[OffsetPair], run: ContiguousRange, new_contiguity_id: Callable[[], str]
) -> None:
    last = found[-1] if found else None
    follows = last is not None and run.target == last.target_offset + 1
    id = last.stretch if last is not None and follows else new_contiguity_id()
    first, end = OffsetPair(id, run.source, run.target), OffsetPair(id, *run.last)
    if last is None or not run.continues(last.offsets):
        found.append(first)
    if end != found[-1]:
        found.append(end)


_VERSION, _IN_TRANSACTION, _PRESERVED = 1, 2, 3
_READABLE = (_VERSION, _IN_TRANSACTION, _PRESERVED)


@dataclass(frozen=True)
class ProgressKey:
    """Key of the progress of a source partition in a target topic."""

    source_cluster_id: str
    topic: str
    partition: int
    target_topic: str

    def encode(self) -> bytes:
        """Return canonical JSON, because compaction compares bytes."""
        return _encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a progress key. Raise ``ValueError`` if it is none."""
        return _decode(cls, data)


@dataclass(frozen=True)
class Loss:
    """A loss of records of one partition.

    It remains in the progress until the partition is reset, because later records hide it.
    """

    cause: LossCause
    first: int
    """First lost offset. ``cause`` determines whether it is a source or a target offset."""
    last: int
    """Last lost offset, or an offset below ``first`` if the last one is unknown."""
    time_ms: int
    """Unix time at which the loss was noticed, in ms."""
    lower_bound: bool = False
    """True if later offsets may also be lost."""
    action: LossAction = LossAction.STOPPED
    """Action taken. A stopped partition waits for a user."""

    @property
    def unresolved(self) -> bool:
        """True if the partition waits for a user."""
        return self.action is LossAction.STOPPED

    @property
    def is_on_target(self) -> bool:
        """True if the target lost records. Offsets are then target offsets."""
        return self.cause in (LossCause.TARGET_TRUNCATED, LossCause.TARGET_RECREATED)

    @property
    def leaves_gap(self) -> bool:
        """True if the copy still lacks records because of this loss.

        False if everything was copied again after the target lost records, or if the copy has the
        records that the source lost.
        """
        if self.unresolved:
            return True
        if self.is_on_target:
            return self.action is LossAction.CONTINUED
        return self.cause is not LossCause.SOURCE_DIVERGED


_MAX_EARLIER = 20
"""Maximum number of losses before the last one. If there are more, the two oldest losses of one
kind are merged."""


def losses_before(loss: Loss, last: Loss | None, earlier: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return the losses before ``loss``, which becomes the last loss of a partition.

    ``last`` is the last loss so far, and ``earlier`` are the losses before it. An unresolved
    ``last`` is left out, because ``loss`` is its outcome.
    """
    if last is None or last.unresolved or last == loss:
        return earlier
    kept = (*earlier, last)
    if len(kept) <= _MAX_EARLIER:
        return kept
    seen: dict[tuple[LossCause, bool], int] = {}
    for n, one in enumerate(kept):  # there are fewer kinds than losses, so two have the same kind
        if (first := seen.setdefault((one.cause, one.leaves_gap), n)) != n:
            covering = _covering(kept[first], one)
            return (*kept[:first], covering, *kept[first + 1 : n], *kept[n + 1 :])
    return kept


def _covering(one: Loss, other: Loss) -> Loss:
    first, last = min(one.first, other.first), max(one.last, other.last)
    return replace(other, first=first, last=last, lower_bound=one.lower_bound or other.lower_bound)


@dataclass(frozen=True)
class SkippedRange:
    """Consecutive source records that the target refused, and that the flow skipped."""

    source_topic_id: str
    first: int
    last: int
    """Offset of the last of these records."""


MAX_SKIPPED = 100
"""Maximum number of ranges of skipped records that progress keeps. The newest are kept."""


def with_skipped(
    skipped: tuple[SkippedRange, ...], source_topic_id: str, offset: int
) -> tuple[SkippedRange, ...]:
    """Return the ranges with the record at ``offset`` added."""
    *others, last = skipped or (SkippedRange(source_topic_id, offset, offset),)
    if (last.source_topic_id, last.last + 1) == (source_topic_id, offset):
        return (*others, replace(last, last=offset))
    one = SkippedRange(source_topic_id, offset, offset)
    return (*(known for known in skipped if known != one), one)[-MAX_SKIPPED:]


@dataclass(frozen=True)
class OwnerProducer:
    """Producer of an owner. The next owner must fence it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def id(self) -> tuple[str, int]:
        """The part of the identity that does not change with the epoch."""
        return self.transactional_id, self.producer_id


@dataclass(frozen=True)
class Confirmed:
    """Last offsets at which the partition's topics were known to have the stored ids.

    Records after these offsets may belong to topics that were created again.
    """

    source_offset: int
    source_end: int
    target_offset: int


@dataclass(frozen=True)
class TargetSeen:
    """End of a partition's acknowledged records on the target.

    All records below ``offset`` were acknowledged while a leader of epoch ``leader_epoch`` had the
    log. If this epoch ends at a lower offset in a later leader's log, the target has lost records
    (KIP-320), even if the log has grown past ``offset`` since.
    """

    offset: int
    leader_epoch: int


@dataclass(frozen=True)
class Switch:
    """A fail-over, after which the target's partition is the original and no longer a copy."""

    time_ms: int
    """Unix time of the fail-over in ms."""
    planned: bool
    """True if the source was copied to its end."""
    source_end: int
    """End of the source's log, or the highest known end if the source did not respond."""
    target_end: int
    """End of the target's log after all producers of the flow were fenced."""
    accepted: tuple[Loss, ...] = ()
    """Losses of the partition that the user accepted with the fail-over."""


@dataclass(frozen=True)
class Progress:
    """Stored progress of a partition: the offsets at which it resumes, and its owner."""

    source_topic_id: str
    source_offset: int
    """Next offset to copy. All copied records below it are acknowledged on the target."""
    leader_epoch: int
    """Leader epoch of the last copied record, or -1 if unknown."""
    target_topic_id: str
    target_offset: int
    """Target offset after the last acknowledged record.

    Without such a record, it is the end of the target's log when the partition was first claimed.
    """
    epoch: int
    """Epoch of the task that owns the partition.

    Each claim increases it, and it never decreases.
    """
    owner: str
    """Task and driver incarnation of the owner, for messages and for fencing."""
    source_end: int = 0
    """Highest known end of the source's log, or 0 if unknown."""
    confirmed: Confirmed | None = None
    """Offsets at which the topic ids were last confirmed, or None if they are not stored."""
    loss: Loss | None = None
    """Last loss, or None."""
    earlier_losses: tuple[Loss, ...] = ()
    """Resolved losses before the last one, in the order in which they were noticed."""
    first_offset: int = -1
    """Offset at which ``spec.startFrom`` began the partition, or -1 if unknown.

    As long as it equals ``source_offset``, nothing was copied.
    """
    reset_ms: int = 0
    """Unix time in ms of the last reset that was carried out, as the user's request states it."""
    tombstones_since_ms: int = 0
    """Unix time in ms since which nothing was copied, if longer than the source keeps tombstones.

    Zero if there was no such pause since the last reset.
    """
    writer: OwnerProducer | None = None
    """Producer of the owner. If it is None, the owner cannot be fenced."""
    unfenced: tuple[int, ...] = ()
    """Producer ids of earlier owners that were not fenced and may append records.

    An id of -1 stands for producers with unknown ids.
    """
    unfenced_until_ms: int = 0
    """Unix time in ms after which the producers in ``unfenced`` append nothing, or 0 if unknown."""
    target_seen: TargetSeen | None = None
    """End of the acknowledged records on the target, or None if unknown."""
    fencing: tuple[OwnerProducer, ...] = ()
    """Producers of earlier owners that ``writer`` is about to fence.

    ``writer`` appends nothing until they are fenced. The next owner must also fence them.
    """
    switch: Switch | None = None
    """Fail-over of the partition, after which no owner copies it. None if there is none."""
    pairs: tuple[OffsetPair, ...] = ()
    """Pairs that the offset syncs may lack, in the order of offsets.

    A new owner writes them. The last pair belongs to the last record below ``target_offset``, or to
    a later one.
    """
    data_writer: OwnerProducer | None = None
    """Producer of the copy's data with ``offsets.mode: Preserved``.

    Every owner appends data with this producer id. In this mode, ``writer`` and ``fencing`` write
    the markers that fill gaps. None means that the target's offsets differ from the source's.
    """
    skipped: tuple[SkippedRange, ...] = ()
    """Source records that were skipped (``onRecordError.action: Skip``), oldest first.

    An audit does not count them as missing.
    """
    version: int = _VERSION
    """Format version of the record.

    It rises only if older releases of headrace must not read the record. An older release ignores
    fields that it does not know, and writes records without them, so that a roll-back loses no
    offset.

    A record of version 2 is written in a transaction, and counts only if the transaction was
    committed. Older releases would accept aborted records. A record of version 3 belongs to a copy
    with its source's offsets. Older releases would append other markers to the copy, which shifts
    all later offsets.
    """

    @property
    def in_transaction(self) -> bool:
        """True if the record counts only after its transaction was committed."""
        return self.version == _IN_TRANSACTION

    def of_transaction(self) -> "Progress":
        """Return the same progress in the format version that is written inside a transaction."""
        return replace(self, version=_IN_TRANSACTION)

    def of_no_transaction(self) -> "Progress":
        """Return the same progress in the format version that is written outside transactions."""
        return replace(self, version=_VERSION if self.data_writer is None else _PRESERVED)

    def preserving(self, data_writer: OwnerProducer) -> "Progress":
        """Return the progress in the format version for a copy that has its source's offsets."""
        return replace(self, data_writer=data_writer, version=_PRESERVED)

    @property
    def known_good(self) -> Confirmed:
        """Latest offsets that are known to belong to the topics with the stored ids."""
        here = Confirmed(self.source_offset, self.source_end, self.target_offset)
        return self.confirmed or here

    @property
    def has_begun(self) -> bool:
        """True if the partition is past the offset at which it began."""
        return self.source_offset != self.first_offset

    @property
    def losses(self) -> tuple[Loss, ...]:
        """All losses since the partition was last reset."""
        return self.earlier_losses if self.loss is None else (*self.earlier_losses, self.loss)

    def with_loss(self, loss: Loss) -> "Progress":
        """Return the progress with ``loss`` as the last loss."""
        earlier = losses_before(loss, self.loss, self.earlier_losses)
        return replace(self, loss=loss, earlier_losses=earlier)

    def encode(self) -> bytes:
        """Encode the record's value as JSON."""
        # Older releases of headrace require this field, which has no meaning.
        return _encode({**asdict(self), "filter_generation": 0})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record's value. Raise ``ValueError`` for a version that headrace cannot read."""
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
"""Decoders that also check types, because another version or program may have written the value."""


def _decode(cls: type[T], data: bytes) -> T:
    try:
        decoded: T = _READERS[cls].validate_json(data, strict=True)
    except ValueError as error:
        raise ValueError(f"not a {cls.__name__} record: {error}") from error
    return decoded


Writers = Mapping[tuple[str, int], OwnerProducer]


def writers_after(writers: Writers, stored: Progress | None, progress: Progress) -> Writers:
    """Return the writers that may append once ``progress`` is read after ``stored``.

    A claim adds its own writer and the writers that it must fence. A claim with an epoch that is
    too low to count also adds them, because its owner may not have noticed yet that it lost the
    partition. If the owner's next record lists no writers to fence, the owner has fenced them.
    """
    following = dict(writers)
    if stored is not None and stored.owner == progress.owner and not progress.fencing:
        for one in stored.fencing:
            following.pop(one.id, None)
    own = (progress.writer,) if progress.writer is not None else ()
    return following | {one.id: one for one in (*progress.fencing, *own)}
