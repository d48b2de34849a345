"""Comparison of both clusters in the offset ranges that ``ranges.fix`` returns."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession

from headrace.api import Partitioning, TopicPartition
from headrace.errors import GaveUp
from headrace.mirror_test import (
    AuditedPast,
    AuditedTopic,
    ExcludedRange,
    Exclusion,
    FindingType,
    MirrorTestRun,
    SchemaCheck,
)
from headrace_spark.audit import ranges, records
from headrace_spark.audit.decodability import check_schemas
from headrace_spark.audit.differences import (
    UNORDERED,
    AuditBlock,
    Edges,
    HashedRecord,
    Key,
    Lane,
    Origin,
    RecordDifference,
    classify,
    compare_blocks,
    compare_counts,
    explain,
    spans,
)
from headrace_spark.audit.earlier_audits import past_blocks, settled, unite_neighbours
from headrace_spark.audit.flow_records import refused, without_copy
from headrace_spark.audit.frontier import AuditedPartition, SourcePartition
from headrace_spark.audit.ranges import AuditedSide, Ranges
from headrace_spark.audit.rechecking import recheck
from headrace_spark.audit.records import Scale
from headrace_spark.records import OffsetRange
from headrace_spark.session import SPARK_ERRORS, Phases, now_ms

MAX_RECORDS = 400_000
"""Maximum number of records that are compared one by one. They take about 200 MB in Python."""
_BLOCK = 8_192
"""Number of records in a block, if they are spread evenly over time."""
_MAX_BLOCKS = 100_000
"""Maximum number of blocks of one side. They take 50 MB in Python."""
_ROWS = 1_000_000
"""Number of records for each task of a shuffle."""
_MAX_PAST_BLOCKS, _FEWEST_PAST_BLOCKS = 1_000, 10
"""Limits of the number of stored blocks of one side of a partition. 1,000 blocks take 80 KB."""
_ATTEMPTS = 3
_EDGE = 100
"""Number of offsets that are read at each end of every partition of a topic.

The timestamps of their records define the time range of the topic's blocks.
"""
_DAY_MS = 86_400_000
_MAY_ARRIVE = {FindingType.MISSING, FindingType.CORRUPTED}
"""Differences of records that are in flight. In a compacted topic, an older record of the same key
is then on the target."""


@dataclass(frozen=True)
class Totals:
    """Size of one topic on one side."""

    records: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class Found:
    """Differences and sizes that an audit found."""

    differences: tuple[RecordDifference, ...]
    excluded: tuple[ExcludedRange, ...]
    source: Mapping[str, Totals]
    target: Mapping[str, Totals]
    lag: int
    """Number of offsets that the source appended after its frontier was fixed.

    Their records may be missing on the target.
    """
    after_frontier: int
    """Number of source records after the frontier that the target lacks. They are no defects."""
    stamped: frozenset[str]
    refused: int = 0
    """Number of source records that the target refused, according to the flow."""
    source_ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """First offset and frontier of each partition, by the topic's name on the source."""
    target_ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """First offset and end offset of each partition, by the topic's name on the source."""
    audited: Mapping[SourcePartition, AuditedPartition] = field(default_factory=dict)
    """Frontiers at which the next audit continues, if this one passes."""
    schemas: SchemaCheck | None = None
    past: AuditedPast | None = None
    """Result for ranges of earlier audits, or None if this audit does not continue any."""


def compare(
    spark: SparkSession,
    run: MirrorTestRun,
    topics: Sequence[AuditedTopic],
    fixed: Ranges,
    phases: Phases,
    *,
    known: Mapping[SourcePartition, AuditedPartition] | None = None,
) -> Found:
    """Compare the topics on both clusters, in the ranges that ``ranges.fix`` returned.

    Partitions in ``known`` are compared from their stored frontier on.

    Records that are missing may arrive until ``settleSeconds`` have elapsed. The topics are then
    compared again, up to the new ends of the target.

    If retention deletes records during the comparison, these records are excluded, and the rest is
    compared again. Raise ``GaveUp`` if a topic was replaced or truncated, or if retention deletes
    records in each attempt.
    """
    past = None
    if known is not None:
        with phases.timed("checking ranges of earlier audits again"):
            past = recheck(spark, run, fixed, known)
    found = _compared(spark, run, topics, fixed, phases)
    if fixed.settles_s is not None and any(one.kind in _MAY_ARRIVE for one in found.differences):
        with phases.timed("waiting for missing records"):
            time.sleep(max(0.0, fixed.settles_s - time.monotonic()))
        found = _compared(spark, run, topics, ranges.extended(fixed), phases)
    return replace(found, past=past)


def _compared(
    spark: SparkSession,
    run: MirrorTestRun,
    topics: Sequence[AuditedTopic],
    fixed: Ranges,
    phases: Phases,
) -> Found:
    audit = run.test.spec.audit
    assert audit is not None
    excluded: list[ExcludedRange] = []
    for attempt in range(_ATTEMPTS):
        try:
            found = _Comparison(spark, run, topics, fixed, phases).compare()
            if audit.schemas is not None:
                with phases.timed("checking schema ids"):
                    found = replace(found, schemas=check_schemas(spark, run, fixed.target))
        except SPARK_ERRORS:
            moved = [ranges.moved_start(side) for side in (fixed.source, fixed.target)]
            for side in (fixed.source, fixed.target):
                ranges.check(side, side.end)
            if not any(moved) or attempt + 1 == _ATTEMPTS:
                raise
            for side, lost in zip((fixed.source, fixed.target), moved, strict=True):
                excluded += _deleted(side, lost, side is fixed.source)
            fixed = replace(
                fixed,
                source=ranges.without(fixed.source, moved[0]),
                target=ranges.without(fixed.target, moved[1]),
            )
        else:
            for side in (fixed.source, fixed.target):
                ranges.check(side, side.end)
            return replace(found, excluded=(*excluded, *found.excluded))
    raise GaveUp("retention deletes records faster than they are compared")


def _deleted(
    side: AuditedSide, lost: Mapping[TopicPartition, tuple[int, int]], is_source: bool
) -> Iterable[ExcludedRange]:
    for at, (start, end) in lost.items():
        yield ExcludedRange(
            reason=Exclusion.DELETED_ON_SOURCE if is_source else Exclusion.DELETED_ON_TARGET,
            cluster=side.cluster.alias,
            topic=at.topic,
            partition=at.partition,
            first=start,
            last=end - 1,
            count=end - start,
        )


@dataclass
class _Comparison:
    """One attempt to compare the ranges."""

    spark: SparkSession
    run: MirrorTestRun
    topics: Sequence[AuditedTopic]
    ranges: Ranges
    phases: Phases
    scales: dict[str, Scale] = field(default_factory=dict)
    excluded: list[ExcludedRange] = field(default_factory=list)
    after_frontier: int = 0
    refused: int = 0

    @property
    def ordered(self) -> bool:
        """True if the mirror preserves partitions."""
        return self.run.test.spec.partitioning is Partitioning.PRESERVED

    def compare(self) -> Found:
        """Compare the blocks, and the records of blocks that differ."""
        source, target = self.ranges.source, self.ranges.target
        offsets = sum(source.end[at] - start for at, start in source.start.items())
        slots = max(2 * self.spark.sparkContext.defaultParallelism, offsets // _ROWS + 1)
        self.spark.conf.set("spark.sql.shuffle.partitions", slots)
        with self.phases.timed("reading the ends of the source"):
            self.scales = self._scales()
        with self.phases.timed("reading the source"):
            on_source = self._summaries(source)
        with self.phases.timed("reading the target"):
            on_target = self._summaries(target)
        totals = [self._totals(side) for side in (on_source, on_target)]
        plain = [
            [block for block in side if block.topic not in self.ranges.compacted]
            for side in (on_source, on_target)
        ]
        with self.phases.timed("comparing record by record"):
            found = [*self._by_records(*plain), *self._by_latest()]
        ends, audit = self.ranges.source.end, self.run.test.spec.audit
        assert audit is not None
        return Found(
            differences=tuple(found),
            excluded=tuple(self.excluded),
            source=totals[0],
            target=totals[1],
            lag=sum(ends[at] - frontier for at, frontier in self.ranges.frontier.items()),
            after_frontier=self.after_frontier,
            refused=self.refused,
            stamped=self.ranges.stamped,
            source_ranges=_by_topic(source, self.ranges.frontier),
            target_ranges=_by_topic(target, target.end),
            audited=self._audited(*plain) if audit.is_incremental else {},
        )

    def _audited(
        self, on_source: Iterable[AuditBlock], on_target: Iterable[AuditBlock]
    ) -> dict[SourcePartition, AuditedPartition]:
        """Return each partition's frontier for the next audit.

        The frontier of a compacted topic is its first record.
        """
        source, target = self.ranges.source, self.ranges.target
        lanes: dict[Lane, tuple[list[AuditBlock], list[AuditBlock]]] = defaultdict(lambda: ([], []))
        for index, blocks in enumerate((on_source, on_target)):
            for block in blocks:
                lanes[block.topic, block.lane][index].append(block)
        copies = {origin: name for name, origin in target.names.items()}
        share = _MAX_BLOCKS // max(1, len(source.start))
        most = max(_FEWEST_PAST_BLOCKS, min(_MAX_PAST_BLOCKS, share))
        changes = source.changes.of_records
        found: dict[SourcePartition, AuditedPartition] = {}
        for at in source.start:
            copy = TopicPartition(copies.get(at.topic, ""), at.partition)
            if copy not in target.start:
                continue
            lane = (at.topic, at.partition)
            is_stamped = at.topic in self.ranges.stamped
            sides = settled(*lanes[lane], self.ranges.frontier[at])
            before = self.ranges.resumed.get(lane)
            if before and not before.is_comparable(is_stamped=is_stamped, changes=changes):
                before = None
            kept = [
                [block for block in stored if block.start >= side.oldest[place]]
                + past_blocks(blocks, side.start[place])
                for side, place, blocks, stored in (
                    (source, at, sides[0], before.source_blocks if before else ()),
                    (target, copy, sides[1], before.target_blocks if before else ()),
                )
            ]
            found[lane] = AuditedPartition(
                run=self.run.name,
                judged_ms=now_ms(),
                source_topic_id=source.ids[at.topic],
                target_topic_id=target.ids[copy.topic],
                source_offset=kept[0][-1].end if kept[0] else source.start[at],
                target_offset=kept[1][-1].end if kept[1] else target.start[copy],
                is_stamped=is_stamped,
                changes=changes,
                source_blocks=tuple(unite_neighbours(kept[0], most)),
                target_blocks=tuple(unite_neighbours(kept[1], most)),
            )
        return found

    def _read(
        self, side: AuditedSide, offset_range: OffsetRange | None = None, *, is_whole: bool = False
    ) -> DataFrame:
        offset_range = offset_range or side.range()
        stamped, changes = self.ranges.stamped, side.changes
        found = records.read(self.spark, side.cluster, offset_range, stamped, changes)
        if not is_whole and self.ranges.since_ms is not None:
            found = records.since(
                found, self.ranges.since_ms, stamped | self.ranges.compacted.keys()
            )
        return records.in_blocks(found, self.scales, ordered=self.ordered)

    def _whole_source(self) -> DataFrame:
        """Read the source from its first record, which may be before the compared range."""
        side = self.ranges.source
        whole = {at: (first, max(first, side.end[at])) for at, first in side.oldest.items()}
        return self._read(side, side.range(whole), is_whole=True)

    def _summaries(self, side: AuditedSide) -> list[AuditBlock]:
        return records.summarised(self._read(side)) if side.start else []

    def _scales(self) -> dict[str, Scale]:
        """Return the time intervals that define the blocks of each topic.

        They are computed from the timestamps at the ends of the source's partitions. A topic with
        one block needs no timestamps.
        """
        side = self.ranges.source
        sizes: Counter[str] = Counter()
        for at, start in side.start.items():
            sizes[at.topic] = max(sizes[at.topic], side.end[at] - start)
        lanes = max(1, len(side.start) if self.ordered else len(self.topics))
        most = max(1, _MAX_BLOCKS // lanes)
        blocks = {topic: max(1, min(size // _BLOCK, most)) for topic, size in sizes.items()}
        divided = {at: start for at, start in side.start.items() if blocks[at.topic] > 1}
        known: dict[str, tuple[int, int]] = {}
        if divided:
            starts = {
                at: (start, min(start + _EDGE, max(start, side.end[at])))
                for at, start in divided.items()
            }
            ends = {
                at: (max(start, side.end[at] - _EDGE), max(start, side.end[at]))
                for at, start in divided.items()
            }
            first, last = (
                records.read(self.spark, side.cluster, side.range(edge), frozenset(), side.changes)
                for edge in (starts, ends)
            )
            known = records.oldest_and_newest(first.unionAll(last))
        return {
            topic.source: records.scale_of(
                *known.get(topic.source, (0, _DAY_MS)),
                blocks.get(topic.source, 1),
                is_stamped=topic.source in self.ranges.stamped,
            )
            for topic in self.topics
        }

    def _totals(self, side: Iterable[AuditBlock]) -> dict[str, Totals]:
        found: dict[str, Totals] = {}
        for block in side:
            known = found.get(block.topic, Totals())
            found[block.topic] = Totals(
                known.records + block.count, known.size_bytes + block.size_bytes
            )
        return found

    def _by_records(
        self, on_source: list[AuditBlock], on_target: list[AuditBlock]
    ) -> Iterable[RecordDifference]:
        """Compare the blocks. Yield the differences between records of blocks that differ."""
        result = compare_blocks(on_source, on_target, MAX_RECORDS)
        here = {block.key: block for block in on_source}
        there = {block.key: block for block in on_target}
        ours = self._records(self.ranges.source, result.differing, here)
        theirs = self._records(self.ranges.target, result.differing, there)
        outcome = classify(
            ours,
            theirs,
            result.agreed,
            self._edges(),
            ordered=self.ordered,
            refused=self._refused(without_copy(ours, theirs)),
        )
        self.after_frontier = outcome.after_frontier
        self.refused += len(outcome.excused)
        self._exclude(Exclusion.REFUSED, self.ranges.source, outcome.excused)
        yield from outcome.differences
        if outcome.strangers:
            contents = {record.content for record in outcome.strangers}
            source = self._whole_source() if self.ranges.source.start else None
            originals = records.with_content(source, contents) if source is not None else {}
            yield from explain(outcome.strangers, originals, ordered=self.ordered)
        self._exclude(Exclusion.DELETED_ON_SOURCE, self.ranges.target, outcome.deleted_on_source)
        self._exclude(Exclusion.DELETED_ON_TARGET, self.ranges.source, outcome.deleted_on_target)
        yield from self._unread(result.unread, here, there)

    def _refused(self, candidates: Sequence[HashedRecord]) -> Set[Origin]:
        """Return the positions of candidates that the target refused, according to the flow."""
        source, target = self.ranges.source, self.ranges.target
        return refused(self.spark, self.run, source.ids, target.names, candidates)

    def _records(
        self, side: AuditedSide, keys: Iterable[Key], known: Mapping[Key, AuditBlock]
    ) -> list[HashedRecord]:
        wanted = [key for key in keys if key in known]
        if not wanted:
            return []
        if not self.ordered:
            return records.of_blocks(self._read(side), wanted)
        here = {source: name for name, source in side.names.items()}
        parts = {
            TopicPartition(here[topic], partition): span
            for (topic, partition), span in spans(wanted, known)
        }
        return records.of_blocks(self._read(side, side.range(parts)), wanted)

    def _edges(self) -> dict[Lane, Edges]:
        source, target = self.ranges.source, self.ranges.target
        cut: dict[Lane, list[bool]] = defaultdict(lambda: [False, False])
        frontier: dict[Lane, dict[int, int]] = defaultdict(dict)
        for index, side in enumerate((source, target)):
            for at in side.start:
                lane = self._lane(side.names[at.topic], at.partition)
                cut[lane][index] |= side.is_cut(at)
                if side is source:
                    # With ``LogAppendTime``, the target's range begins by append times, so it may
                    # contain copies of earlier source records.
                    cut[lane][0] |= at.topic in self.ranges.stamped and side.start[at] > 0
                    frontier[lane][at.partition] = self.ranges.frontier[at]
        return {lane: Edges(frontier[lane], *both) for lane, both in cut.items()}

    def _lane(self, topic: str, partition: int) -> Lane:
        return topic, partition if self.ordered else UNORDERED

    def _by_latest(self) -> Iterable[RecordDifference]:
        """Return the differences between the latest records of each key in compacted topics."""
        compacted = self.ranges.compacted
        if not compacted:
            return
        source, target = self.ranges.source, self.ranges.target
        wanted = [
            {
                at: (start, max(start, side.end[at]))
                for at, start in side.start.items()
                if side.names[at.topic] in compacted
            }
            for side in (source, target)
        ]
        frontier = {at: end for at, end in self.ranges.frontier.items() if at.topic in compacted}
        found = records.latest_differing(
            self._read(source, source.range(wanted[0])),
            self._read(target, target.range(wanted[1])),
            frontier,
            MAX_RECORDS,
        )
        if len(found) == MAX_RECORDS:
            self._exclude_uncounted(compacted)
        edges = self._edges()
        not_copied = self._refused([one.source for one in found if one.source])
        # The filter hides records of the source that supersede records of the target.
        is_filtered = source.changes.record_filter is not None
        rewritten, cut_on_source, cut_on_target, excused = [], [], [], []
        for one in found:
            record = one.source or one.target
            assert record is not None
            edge = edges.get(self._lane(record.topic, record.partition), Edges())
            difference = records.judge_latest(one, now_ms() - compacted[record.topic])
            if one.source and one.source.origin in not_copied:
                excused.append(one.source)
            elif one.is_rewritten:
                rewritten.append(record)
            elif difference and difference.kind is FindingType.MISSING and edge.target_is_cut:
                cut_on_target.append(record)
            elif (
                difference
                and difference.kind is FindingType.ALIEN
                and (edge.source_is_cut or is_filtered)
            ):
                cut_on_source.append(record)
            elif difference:
                yield difference
        self.refused += len(excused)
        self._exclude(Exclusion.REFUSED, source, excused)
        self._exclude(Exclusion.BEING_REWRITTEN, source, rewritten)
        self._exclude(Exclusion.DELETED_ON_SOURCE, target, cut_on_source)
        self._exclude(Exclusion.DELETED_ON_TARGET, source, cut_on_target)

    def _exclude_uncounted(self, topics: Iterable[str]) -> None:
        """Report that more keys of compacted topics differ than can be compared."""
        for topic in sorted(topics):
            self.excluded.append(
                ExcludedRange(
                    reason=Exclusion.UNREAD,
                    cluster=self.ranges.source.cluster.alias,
                    topic=topic,
                    count=0,
                )
            )

    def _exclude(
        self, reason: Exclusion, side: AuditedSide, excluded: Sequence[HashedRecord]
    ) -> None:
        lanes: dict[Lane, list[int]] = defaultdict(list)
        for record in excluded:
            lanes[record.topic, record.partition].append(record.offset)
        here = {source: name for name, source in side.names.items()}
        for (topic, partition), offsets in sorted(lanes.items()):
            self.excluded.append(
                ExcludedRange(
                    reason=reason,
                    cluster=side.cluster.alias,
                    topic=here.get(topic, topic),
                    partition=partition,
                    first=min(offsets),
                    last=max(offsets),
                    count=len(offsets),
                )
            )

    def _unread(
        self,
        keys: Iterable[Key],
        source_blocks: Mapping[Key, AuditBlock],
        target_blocks: Mapping[Key, AuditBlock],
    ) -> Iterable[RecordDifference]:
        """Yield the differences that the record counts of unread blocks prove.

        The other records of these blocks are reported as not compared.
        """
        may_be_refused = bool(self.run.changes.topics_of_refused(self.run.source.alias))
        found, unsure = compare_counts(
            keys, source_blocks, target_blocks, self._edges(), may_be_refused=may_be_refused
        )
        yield from found
        for (topic, partition), count in sorted((+unsure).items()):
            self.excluded.append(
                ExcludedRange(
                    reason=Exclusion.UNREAD,
                    cluster=self.ranges.source.cluster.alias,
                    topic=topic,
                    partition=None if partition == UNORDERED else partition,
                    count=count,
                )
            )


def _by_topic(side: AuditedSide, ends: ranges.Offsets) -> dict[str, tuple[tuple[int, int], ...]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for at in sorted(side.start):
        found.setdefault(side.names[at.topic], []).append((side.start[at], ends[at]))
    return {topic: tuple(pairs) for topic, pairs in found.items()}
