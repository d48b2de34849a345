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
    """Runs with the same number have nothing but each other, and what was forgotten of this lane,
    between them on the target: with equal distances of offsets there are no holes either."""

    @property
    def last(self) -> tuple[int, int]:
        """Source and target offset of the last record."""
        return self.source + self.records - 1, self.target + self.records - 1

    def continues(self, last: tuple[int, int]) -> bool:
        """Whether its first record is the very next one on both sides."""
        return (self.source - 1, self.target - 1) == last

    def without(self, first: int) -> "ContiguousRange":
        """What is behind its first so many records."""
        source, target = self.source + first, self.target + first
        return ContiguousRange(source, target, self.records - first, self.stretch)


class CopiedRuns:
    """Of one partition, as long as it is open. Calls come in the order of offsets."""

    __slots__ = ("_runs", "_stretch", "records", "source", "target")

    def __init__(self) -> None:
        self._runs: list[ContiguousRange] = []
        self._stretch = 0
        self.source = self.target = self.records = 0
        """The run that continues. It has no records if all of it was taken. The ledger extends it
        without a call of ``add`` for each batch."""

    def add(self, source: int, target: int, records: int = 1) -> None:
        """The target has acknowledged these."""
        count = self.records
        if source == self.source + count and target == self.target + count:
            self.records = count + records
            return
        if count:
            self._close()
        # Before the first one there is none: the number that it gets does not matter.
        self._stretch += target != self.target + count
        self.source, self.target, self.records = source, target, records

    def take(self) -> list[ContiguousRange]:
        """What came since the last call; a run that goes on comes in pieces."""
        if self.records:
            self._close()
            self.source, self.target = self.source + self.records, self.target + self.records
            self.records = 0
        runs, self._runs = self._runs, []
        return runs

    def _close(self) -> None:
        self._runs.append(ContiguousRange(self.source, self.target, self.records, self._stretch))
        few_enough(self._runs, MOST_RUNS)


# Pairs of offsets that progress keeps until they are safe as offset syncs. Pure.
#
# A driver that is killed takes with it which syncs were on their way. Whoever takes over writes
# them, and those of what the killed one appended behind its progress.

MOST_PAIRS = 256
"""Of a partition. Beyond, every second one is forgotten: between two that are kept, translation is
conservative."""


@dataclass(frozen=True)
class OffsetPair:
    """A record of the source, and where its copy is on the target."""

    stretch: str
    """As the header ``STRETCH`` of its sync."""
    source_offset: int
    target_offset: int

    @property
    def offsets(self) -> tuple[int, int]:
        """Source and target offset."""
        return self.source_offset, self.target_offset


def with_runs(
    pairs: Iterable[OffsetPair], runs: Iterable[ContiguousRange], new_stretch: Callable[[], str]
) -> tuple[OffsetPair, ...]:
    """The pairs, and the first and the last one of each run, where they are behind these."""
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
        """Raises ``ValueError`` when it is no progress key."""
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
    """Whether later offsets may be lost, too."""
    action: LossAction = LossAction.STOPPED
    """A partition that is stopped waits for a person."""

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
    """Return the losses before ``loss``: an unresolved one is replaced by what becomes of it."""
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
        """What stays the same from epoch to epoch."""
        return self.transactional_id, self.producer_id


@dataclass(frozen=True)
class Confirmed:
    """Where a partition was when its topics were last known to be those of the ids that are stored:
    what came later may be of topics that were created again."""

    source_offset: int
    source_end: int
    target_offset: int


@dataclass(frozen=True)
class TargetSeen:
    """What the target held of a partition: while a leader of this epoch had its log, all below the
    offset was acknowledged. A later leader whose log ends the epoch below it has lost records,
    also when its log is longer again (KIP-320)."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True)
class Switch:
    """A fail-over: from here on the partition of the target is a copy no more, but the original."""

    time_ms: int
    """Unix time."""
    planned: bool
    """Whether the source was copied to its end."""
    source_end: int
    """Of the source's log; the highest that was seen, where the source did not answer."""
    target_end: int
    """Of the target's log, once no writer of the flow could append any more."""
    accepted: tuple[Loss, ...] = ()
    """Losses of the partition that the user accepted with the fail-over."""


@dataclass(frozen=True)
class Progress:
    """Where to resume, and who stored it."""

    source_topic_id: str
    source_offset: int
    """The next offset to copy: all below it is acknowledged on the target."""
    leader_epoch: int
    """Of the last copied record; -1 when unknown."""
    target_topic_id: str
    target_offset: int
    """The next offset on the target after the last acknowledged record; without one, where its log
    ended when the partition was claimed first."""
    epoch: int
    """Of the task that owns the partition; rises with each claim, never falls."""
    owner: str
    """Task and driver incarnation, for people and for fencing."""
    source_end: int = 0
    """The highest end of the source's log that was seen; 0 when unknown."""
    confirmed: Confirmed | None = None
    """None: of an owner that did not store it."""
    loss: Loss | None = None
    """The last loss."""
    earlier_losses: tuple[Loss, ...] = ()
    """Resolved losses before the last one, in the order in which they were noticed."""
    first_offset: int = -1
    """Where ``spec.startFrom`` let the partition begin; -1 if that is not known. While it is still
    the next offset, nothing was copied."""
    reset_ms: int = 0
    """The time of the last reset that was carried out, as the user gave it: Unix time."""
    tombstones_since_ms: int = 0
    """Since when nothing was copied, when that was for longer than the source keeps tombstones
    (Unix time); 0: never since the last reset."""
    writer: OwnerProducer | None = None
    """None: an owner that cannot be fenced."""
    unfenced: tuple[int, ...] = ()
    """Producer ids of earlier owners that were not fenced, and may append more; -1: of some whose
    ids are not known."""
    unfenced_until_ms: int = 0
    """When these append nothing more (Unix time); 0: not known."""
    target_seen: TargetSeen | None = None
    """None: not known."""
    fencing: tuple[OwnerProducer, ...] = ()
    """Earlier owners that ``writer`` is about to fence: until that is done it appends nothing, and
    whoever takes over from it has to fence these, too."""
    switch: Switch | None = None
    """The partition was failed over: nobody copies it."""
    pairs: tuple[OffsetPair, ...] = ()
    """What offset syncs may not say yet, in the order of offsets: whoever takes over writes them.
    The last one is of the last record below ``target_offset``, or of a later one."""
    data_writer: OwnerProducer | None = None
    """With ``offsets.mode: Preserved``: whose producer id the copy's data has, whoever appends it,
    for ever. ``writer`` and ``fencing`` write the markers of holes then. None: offsets are others
    than the source's."""
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
        """The same, to be written in a transaction."""
        return replace(self, version=_IN_TRANSACTION)

    def of_no_transaction(self) -> "Progress":
        """The same, to be written by itself: it counts at once."""
        return replace(self, version=_VERSION if self.data_writer is None else _PRESERVED)

    def preserving(self, data_writer: OwnerProducer) -> "Progress":
        """The same, of a copy with its source's offsets."""
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
        """Raises ``ValueError`` for a version this headrace cannot read."""
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
"""They check types too: what another version or another program wrote may be anything."""


def _decode(cls: type[T], data: bytes) -> T:
    try:
        decoded: T = _READERS[cls].validate_json(data, strict=True)
    except ValueError as error:
        raise ValueError(f"not a {cls.__name__} record: {error}") from error
    return decoded


Writers = Mapping[tuple[str, int], OwnerProducer]


def writers_after(writers: Writers, stored: Progress | None, progress: Progress) -> Writers:
    """The writers that may append, once ``progress`` is read behind all that led to ``writers``.

    ``stored`` is what counted before. A claim adds its own writer, and those that it has to fence:
    also one with an epoch too low to count, whose owner has yet to find that out. The same owner's
    record without any says that they are fenced.
    """
    following = dict(writers)
    if stored is not None and stored.owner == progress.owner and not progress.fencing:
        for one in stored.fencing:
            following.pop(one.id, None)
    own = (progress.writer,) if progress.writer is not None else ()
    return following | {one.id: one for one in (*progress.fencing, *own)}
