"""Blocks that differ, and the classification of their records.

All functions are pure. A block contains every record with timestamps in one interval. The borders
depend only on the records, so both sides have the same blocks even if their offsets differ. If the
sums of a block are equal, both sides have the same records in the same order. All copies of a
record with the same timestamp are in one block. Only a record with a changed timestamp, partition
or topic has its counterpart in another block, and then both blocks differ.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from headrace.mirror_test import FindingType
from headrace_spark.blocks import Sums

Lane = tuple[str, int]
"""Source topic and partition whose records keep their order.

The partition is ``UNORDERED`` if the mirror does not preserve partitions.
"""
UNORDERED = -1
Origin = tuple[str, int, int]
"""Source topic, partition and offset of a record."""


class HashedRecord(NamedTuple):
    """A record with its content as hashes."""

    topic: str
    """Topic name on the source."""
    partition: int
    offset: int
    timestamp_ms: int
    """Timestamp, or 0 if timestamps are not compared because the target stamps records."""
    key: int
    value: int
    headers: int
    content: int
    """Second hash of key, value and headers."""

    @property
    def origin(self) -> Origin:
        """Position of the record."""
        return self[:3]

    @property
    def identity(self) -> Hashable:
        """Everything that a mirror must preserve, except the position."""
        return self[3:]


class Agreed(NamedTuple):
    """Block with equal records in the same order on both sides."""

    on_source: int
    """Offset of the first record on the source, or its oldest timestamp if there is no order."""
    on_target: int
    """Offset of the first record on the target, or its oldest timestamp if there is no order."""
    records: int


Key = tuple[str, int, int]
"""Source topic, partition and block number.

The partition is ``UNORDERED`` if the mirror does not preserve partitions.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBlock(Sums):
    """Sums over the records of a lane whose timestamps are in one interval."""

    topic: str
    lane: int
    number: int
    size_bytes: int
    """Total size of keys and values."""
    first: int
    last: int
    """Smallest and largest offset."""
    oldest_ms: int

    @property
    def key(self) -> Key:
        """Identity of the block, which is the same on both sides."""
        return self.topic, self.lane, self.number

    @property
    def position(self) -> int:
        """Offset of the first record, or the oldest timestamp if there is no order."""
        return self.oldest_ms if self.lane == UNORDERED else self.first


@dataclass(frozen=True)
class BlockComparison:
    """Result of comparing the sums of both sides."""

    agreed: Mapping[Lane, Sequence[Agreed]]
    differing: frozenset[Key]
    """Blocks to compare record by record.

    They differ, or share offsets with blocks that differ.
    """
    unread: frozenset[Key]
    """Blocks that differ and exceed the limit of records to compare."""


def compare_blocks(
    source: Iterable[AuditBlock], target: Iterable[AuditBlock], most_records: int
) -> BlockComparison:
    """Return the blocks whose sums differ between both sides, and the blocks that agree.

    The caller reads the records of the differing blocks. To limit that work, the differing blocks
    contain at most ``most_records`` records of both sides together.
    """
    here, there = ({block.key: block for block in side} for side in (source, target))
    differing = set(here.keys() ^ there.keys())
    apart: dict[Key, int] = {}
    for key in here.keys() & there.keys():
        ours, theirs = here[key], there[key]
        if not ours.has_records_of(theirs):
            differing.add(key)
        elif key[1] == UNORDERED:
            apart[key] = 0
        elif (rows := ours.rows_apart(theirs)) is None:
            differing.add(key)
        else:
            apart[key] = rows
    differing |= _interleaved(here, apart) | _interleaved(there, apart)
    beside = set().union(
        *(_beside(side, apart.keys() - differing, differing) for side in (here, there))
    )
    agreed: dict[Lane, list[Agreed]] = defaultdict(list)
    for key in sorted(apart.keys() - differing - beside):
        ours, theirs = here[key], there[key]
        agreed[key[:2]].append(Agreed(ours.position, theirs.position, ours.count))
    read, left = set(), most_records
    wanted = differing | beside

    def priority(key: Key) -> tuple[bool, bool, Key]:
        # Blocks that only one side has are read last: their counts alone show how many records are
        # missing or alien.
        return key in beside, key not in here or key not in there, key

    for key in sorted(wanted, key=priority):
        count = sum(side[key].count for side in (here, there) if key in side)
        if count <= left:
            read.add(key)
            left -= count
    return BlockComparison(agreed, frozenset(read), frozenset(wanted - read))


def _interleaved(side: Mapping[Key, AuditBlock], apart: Mapping[Key, int]) -> set[Key]:
    """Return equal blocks that overlap, but have different distances to their copies.

    The order of their records may differ.
    """
    found: set[Key] = set()
    furthest: AuditBlock | None = None
    for block in sorted((side[key] for key in apart), key=lambda b: (b.topic, b.lane, b.first)):
        same_lane = furthest is not None and furthest.key[:2] == block.key[:2]
        if furthest is not None and same_lane and block.lane != UNORDERED:
            overlap = block.first < furthest.last
            if overlap and apart[block.key] != apart[furthest.key]:
                found |= {block.key, furthest.key}
        if furthest is None or not same_lane or block.last > furthest.last:
            furthest = block
    return found


def _beside(side: Mapping[Key, AuditBlock], agreed: Set[Key], differing: Set[Key]) -> Iterator[Key]:
    """Yield equal blocks that share offsets with a block that differs.

    A record of the differing block may have moved across records of the equal block. A record that
    is missing or duplicated nearby can compensate the distance, so that the sums are equal.
    """
    starts: dict[Lane, list[int]] = defaultdict(list)
    ends: dict[Lane, list[int]] = defaultdict(list)
    for block in sorted((side[key] for key in differing & side.keys()), key=lambda b: b.first):
        lane = block.key[:2]
        if ends[lane] and block.first <= ends[lane][-1]:
            ends[lane][-1] = max(ends[lane][-1], block.last)
        else:
            starts[lane].append(block.first)
            ends[lane].append(block.last)
    for key in agreed:
        lane, block = key[:2], side[key]
        nearest = bisect_right(starts[lane], block.last) - 1
        if block.lane != UNORDERED and nearest >= 0 and ends[lane][nearest] > block.first:
            yield key


def spans(
    keys: Iterable[Key], side: Mapping[Key, AuditBlock]
) -> Iterator[tuple[Lane, tuple[int, int]]]:
    """Yield the first offset and the end offset of each lane's blocks in ``keys``."""
    found: dict[Lane, tuple[int, int]] = {}
    for key in keys:
        if key in side:
            block = side[key]
            first, end = found.get(key[:2], (block.first, block.last + 1))
            found[key[:2]] = (min(first, block.first), max(end, block.last + 1))
    yield from found.items()


class RecordDifference(NamedTuple):
    """Difference between a record on the source and on the target."""

    kind: FindingType
    source: HashedRecord | None
    target: HashedRecord | None
    differs: str = ""
    """Differing parts of a corrupted or duplicated record, separated by commas."""
    records: int = 1
    """Number of consecutive records with this difference. It exceeds 1 if a block moved."""

    @property
    def record(self) -> HashedRecord:
        """Target record, or the source record if there is none."""
        record = self.target or self.source
        assert record is not None
        return record


@dataclass(frozen=True)
class Edges:
    """Limits of one lane beyond which a missing record proves nothing."""

    frontier: Mapping[int, int] = field(default_factory=dict)
    """First offset of each source partition whose records may be missing on the target.

    These records were written after the audit began.
    """
    source_is_cut: bool = False
    """True if the source may have deleted records that the target still has."""
    target_is_cut: bool = False
    """True if the target may have deleted records that the source still has."""


@dataclass(frozen=True)
class Outcome:
    """Differences in the blocks that differ, and records without an explanation."""

    differences: tuple[RecordDifference, ...] = ()
    strangers: tuple[HashedRecord, ...] = ()
    """Target records without a counterpart in the same blocks of the source."""
    after_frontier: int = 0
    """Number of source records after the frontier that the target lacks."""
    deleted_on_source: tuple[HashedRecord, ...] = ()
    """Target records before the first record that both sides have."""
    deleted_on_target: tuple[HashedRecord, ...] = ()
    """Source records before the first record that both sides have."""
    excused: tuple[HashedRecord, ...] = ()
    """Source records that the target lacks because it refused them."""


_CHANGES: tuple[tuple[str, ...], ...] = (
    ("value",),
    ("headers",),
    ("timestamp",),
    ("key",),
    ("value", "headers"),
)
"""Combinations of parts in which a copy may differ from its original, likeliest first."""
_FIELDS = ("timestamp_ms", "key", "value", "headers")
_Unpaired = tuple[list[HashedRecord], list[HashedRecord]]
"""Source records and target records without a counterpart."""


def classify(
    source: Sequence[HashedRecord],
    target: Sequence[HashedRecord],
    agreed: Mapping[Lane, Sequence[Agreed]],
    edges: Mapping[Lane, Edges],
    *,
    ordered: bool,
    refused: Set[Origin] = frozenset(),
) -> Outcome:
    """Return the differences between the records of blocks that differ.

    Args:
        source: Source records of these blocks.
        target: Target records of these blocks.
        agreed: Equal blocks of each lane, which are needed to check the order of all its records.
        edges: Limits beyond which missing records prove nothing, by lane.
        ordered: Whether the mirror preserves partitions and their order.
        refused: Positions of source records that the target refused. They may be missing.
    """

    def lane(record: HashedRecord) -> Lane:
        return record.topic, record.partition if ordered else UNORDERED

    def position(record: HashedRecord) -> int:
        return record.offset if ordered else record.timestamp_ms

    # A refused record gets a copy only after all equal records have one.
    source = sorted(source, key=lambda record: (record.origin in refused, record.origin))
    pairs, lost, surplus = _paired(source, target, lambda record: (lane(record), record.identity))
    present = {(lane(s), s.identity): s for s, _ in reversed(pairs)}
    found = [
        RecordDifference(FindingType.DUPLICATED, original, record)
        for record in surplus
        if (original := present.get((lane(record), record.identity)))
    ]
    strangers = [r for r in surplus if (lane(r), r.identity) not in present]
    changed: list[RecordDifference] = []
    if ordered:
        moved, lost, strangers = _paired(lost, strangers, lambda r: (r.topic, r.identity))
        changed += (RecordDifference(FindingType.CORRUPTED, s, t, "partition") for s, t in moved)
    exchanged, lost, strangers = _paired(lost, strangers, lambda r: r.identity)
    changed += (RecordDifference(FindingType.CORRUPTED, s, t, "topic") for s, t in exchanged)
    excused = [record for record in lost if record.origin in refused]
    lost = [record for record in lost if record.origin not in refused]
    starts = _first_common(pairs, agreed, lane, position)

    def is_new(record: HashedRecord) -> bool:
        """Return True if the source record may be missing on the target."""
        frontier = edges.get(lane(record), Edges()).frontier
        return record.offset >= frontier.get(record.partition, record.offset + 1)

    def may_be_deleted_on_target(record: HashedRecord) -> bool:
        edge, first = edges.get(lane(record), Edges()), starts.get(lane(record))
        return edge.target_is_cut and (first is None or position(record) < first[0])

    def may_be_deleted_on_source(record: HashedRecord) -> bool:
        edge, first = edges.get(lane(record), Edges()), starts.get(lane(record))
        return edge.source_is_cut and (first is None or position(record) < first[1])

    def pair_changed(lost: list[HashedRecord], strangers: list[HashedRecord]) -> _Unpaired:
        for what in _CHANGES:
            altered, lost, strangers = _paired(lost, strangers, _others(what, lane))
            changed.extend(
                RecordDifference(FindingType.CORRUPTED, s, t, ", ".join(what)) for s, t in altered
            )
        return lost, strangers

    new, due = _split(lost, is_new)
    due, strangers = pair_changed(due, strangers)
    # A new record is no original of a copy that is older than the source's first record, even if
    # they differ only in the timestamp.
    cut_on_source, strangers = _split(strangers, may_be_deleted_on_source)
    new, strangers = pair_changed(new, strangers)
    if ordered:
        found += _out_of_order(pairs, agreed)
    cut_on_target, late = _split(due, may_be_deleted_on_target)
    found += changed
    found += (RecordDifference(FindingType.MISSING, record, None) for record in late)
    return Outcome(
        differences=tuple(found),
        strangers=tuple(strangers),
        after_frontier=len(new),
        deleted_on_source=tuple(cut_on_source),
        deleted_on_target=tuple(cut_on_target),
        excused=tuple(excused),
    )


def _split(
    records: Iterable[HashedRecord], has_property: Callable[[HashedRecord], bool]
) -> tuple[list[HashedRecord], list[HashedRecord]]:
    """Return the records that have a property, and the other records."""
    found: tuple[list[HashedRecord], list[HashedRecord]] = ([], [])
    for record in records:
        found[not has_property(record)].append(record)
    return found


def compare_counts(
    keys: Iterable[Key],
    source: Mapping[Key, AuditBlock],
    target: Mapping[Key, AuditBlock],
    edges: Mapping[Lane, Edges],
    *,
    may_be_refused: bool,
) -> tuple[Sequence[RecordDifference], Counter[Lane]]:
    """Return the differences that the record counts of unread blocks prove.

    The second result is the number of other records of these blocks, by lane.

    Args:
        keys: The unread blocks.
        source: Blocks of the source.
        target: Blocks of the target.
        edges: Limits beyond which missing records prove nothing, by lane.
        may_be_refused: Whether the flow may have skipped records that the target refused.
    """
    found: list[RecordDifference] = []
    unsure: Counter[Lane] = Counter()
    for key in sorted(keys):
        lane, ours, theirs = key[:2], source.get(key), target.get(key)
        edge = edges.get(lane, Edges())
        here, there = (block.count if block else 0 for block in (ours, theirs))
        is_old = ours is not None and ours.last < min(edge.frontier.values(), default=0)
        if here > there and ours and is_old and not (edge.target_is_cut or may_be_refused):
            missing = RecordDifference(FindingType.MISSING, _first_in(ours), None)
            found.append(missing._replace(records=here - there))
            unsure[lane] += there
        elif there > here and theirs and not edge.source_is_cut:
            # A further copy of a record has the same timestamp, and is in the same block.
            kind = FindingType.DUPLICATED if ours else FindingType.ALIEN
            surplus = RecordDifference(kind, _first_in(ours) if ours else None, _first_in(theirs))
            found.append(surplus._replace(records=there - here))
            unsure[lane] += here
        else:
            unsure[lane] += max(here, there)
    return found, unsure


def _first_in(block: AuditBlock) -> HashedRecord:
    """Return the first record of a block that was not read. It contains only the position."""
    return HashedRecord(block.topic, max(block.lane, 0), block.first, 0, 0, 0, 0, 0)


def explain(
    strangers: Iterable[HashedRecord], originals: Mapping[int, HashedRecord], *, ordered: bool
) -> tuple[RecordDifference, ...]:
    """Return the difference of each target record without a counterpart in its own block.

    Args:
        strangers: The target records.
        originals: Records of the whole source, by their hash ``content``.
        ordered: Whether the mirror preserves partitions.
    """
    found = []
    for record in strangers:
        original = originals.get(record.content)
        if original is None or original[4:] != record[4:]:
            found.append(RecordDifference(FindingType.ALIEN, None, record))
            continue
        differs = [
            what
            for what, is_other in (
                ("timestamp", original.timestamp_ms != record.timestamp_ms),
                ("topic", original.topic != record.topic),
                ("partition", ordered and original.partition != record.partition),
            )
            if is_other
        ]
        found.append(RecordDifference(FindingType.DUPLICATED, original, record, ", ".join(differs)))
    return tuple(found)


def _paired(
    source: Iterable[HashedRecord],
    target: Iterable[HashedRecord],
    name: Callable[[HashedRecord], Hashable],
) -> tuple[list[tuple[HashedRecord, HashedRecord]], list[HashedRecord], list[HashedRecord]]:
    """Pair the n-th source record with the n-th target record of the same ``name``.

    Source records are taken in the given order. Return the pairs, the unpaired source records and
    the unpaired target records.
    """
    waiting: dict[Hashable, list[HashedRecord]] = defaultdict(list)
    for record in sorted(target, key=_place, reverse=True):
        waiting[name(record)].append(record)
    pairs, lost = [], []
    for record in source:
        copies = waiting.get(name(record))
        if copies:
            pairs.append((record, copies.pop()))
        else:
            lost.append(record)
    surplus = [record for records in waiting.values() for record in records]
    return pairs, lost, sorted(surplus, key=_place)


_place = attrgetter("origin")


def _others(
    what: Collection[str], lane: Callable[[HashedRecord], Lane]
) -> Callable[[HashedRecord], Hashable]:
    """Return a function that returns a record's lane and all its parts except ``what``.

    A copy that differs from its original only in the parts ``what`` has the same result.
    """
    fields = [name for name in _FIELDS if name.removesuffix("_ms") not in what]
    return lambda record: (lane(record), *(getattr(record, name) for name in fields))


def _first_common(
    pairs: Iterable[tuple[HashedRecord, HashedRecord]],
    agreed: Mapping[Lane, Sequence[Agreed]],
    lane: Callable[[HashedRecord], Lane],
    position: Callable[[HashedRecord], int],
) -> dict[Lane, tuple[int, int]]:
    """Return the smallest position, on each side, of records that both sides have, by lane."""
    found: dict[Lane, tuple[int, int]] = {}

    def see(at: Lane, source: int, target: int) -> None:
        known = found.get(at, (source, target))
        found[at] = (min(known[0], source), min(known[1], target))

    for at, blocks in agreed.items():
        for block in blocks:
            see(at, block.on_source, block.on_target)
    for source, target in pairs:
        see(lane(source), position(source), position(target))
    return found


def _out_of_order(
    pairs: Iterable[tuple[HashedRecord, HashedRecord]], agreed: Mapping[Lane, Sequence[Agreed]]
) -> list[RecordDifference]:
    """Return the smallest set of records that must be moved to restore the source's order.

    These are the records outside a longest common subsequence of both sides, for each partition.
    """
    lanes: dict[Lane, list[_Item]] = defaultdict(list)
    for source, target in pairs:
        at = (source.topic, source.partition)
        lanes[at].append(_Item(source.offset, target.offset, 1, (source, target)))
    for at, blocks in agreed.items():
        for block in blocks:
            first = (_first_of(at, block.on_source), _first_of(at, block.on_target))
            lanes[at].append(_Item(*block, first))
    return [
        RecordDifference(FindingType.REORDERED, *item.pair, records=item.weight)
        for items in lanes.values()
        for item in _outside_longest_order(items)
    ]


def _first_of(at: Lane, offset: int) -> HashedRecord:
    """Return the first record of a block that was not read. It contains only the position."""
    return HashedRecord(*at, offset, 0, 0, 0, 0, 0)


class _Item(NamedTuple):
    source: int
    target: int
    weight: int
    pair: tuple[HashedRecord, HashedRecord]


def _outside_longest_order(items: Iterable[_Item]) -> list[_Item]:
    """Return the items outside the heaviest sequence that ascends on both sides."""
    ordered = sorted(items)
    if all(a.target < b.target for a, b in pairwise(ordered)):
        return []
    ranks = {target: rank for rank, target in enumerate(sorted({i.target for i in ordered}), 1)}
    best = [(0, -1)] * (len(ranks) + 1)
    """Heaviest sequence that ends at a rank or below, as a Fenwick tree: weight and last item."""
    before, heaviest = [], (0, -1)
    for index, item in enumerate(ordered):
        rank = ranks[item.target] - 1
        weight, last = 0, -1
        while rank > 0:
            weight, last = max((weight, last), best[rank])
            rank -= rank & -rank
        before.append(last)
        reached = (weight + item.weight, index)
        heaviest = max(heaviest, reached)
        rank = ranks[item.target]
        while rank < len(best):
            best[rank] = max(best[rank], reached)
            rank += rank & -rank
    kept, index = set(), heaviest[1]
    while index >= 0:
        kept.add(index)
        index = before[index]
    return [item for index, item in enumerate(ordered) if index not in kept]
