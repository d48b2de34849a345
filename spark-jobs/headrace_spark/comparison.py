"""Exact comparison of the records of both clusters.

The offset ranges are fixed before anything is read. The manifest contains the range of the source.
The range of the target ends at its last stable offsets when the comparison begins.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import ClusterAccess, Partitioning, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import Position
from headrace.mirror_test import (
    MAX_EXAMPLES,
    MAX_SHARES,
    Counts,
    Example,
    FindingShare,
    FindingType,
    LoadManifest,
    MirrorTestRun,
    Stream,
)
from headrace_spark import blocks, checks, examples, messages, records
from headrace_spark.audit.flow_records import copied
from headrace_spark.blocks import Block, doubts
from headrace_spark.checks import IDENTITY
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.records import OffsetRange
from headrace_spark.session import Phases, now_ms, spark_versions

CHUNK = 1_000_000
"""Number of sequence numbers in one row. They take 8 MB when a task expands them."""


def claims_frame(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Return the number of sequence numbers that each producer used.

    The columns are ``topic``, ``producer`` and ``sent``. The sequence numbers begin at 0. In the
    rows of sentinels, ``producer`` is the name of the run.
    """
    streams = [(s.topic, s.producer, s.sent) for s in manifest.streams]
    sentinels = [(t.name, manifest.run, t.partitions) for t in manifest.topics]
    return spark.createDataFrame(
        [*streams, *sentinels], "topic string, producer string, sent bigint"
    )


def claimed(records: DataFrame, claims: DataFrame) -> DataFrame:
    """Add the column ``claimed``, which is true if a record's sequence number is in the manifest.

    Refused messages are claimed as well.
    """
    return (
        records.join(F.broadcast(claims), ["topic", "producer"], "left")
        .withColumn("claimed", F.coalesce(F.col("seq").between(0, F.col("sent") - 1), F.lit(False)))
        .drop("sent")
    )


def acknowledged_frame(
    spark: SparkSession, manifest: LoadManifest, chunk: int = CHUNK
) -> DataFrame:
    """Return all acknowledged messages, with the columns ``topic``, ``producer`` and ``seq``.

    Spark expands at most ``chunk`` sequence numbers from one row.
    """
    ranges = ((s.topic, s.producer, r) for s in manifest.streams for r in acknowledged_ranges(s))
    return _unfolded(spark, ranges, chunk)


def sentinels_frame(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Return all end sentinels, with the columns ``topic``, ``producer`` and ``seq``.

    The column ``producer`` contains the name of the run, and ``seq`` the partition.
    """
    ends = ((t.name, manifest.run, (0, t.partitions - 1)) for t in manifest.topics)
    return _unfolded(spark, ends)


def refused_frame(spark: SparkSession, manifest: LoadManifest, chunk: int = CHUNK) -> DataFrame:
    """Return all messages that were sent and not acknowledged.

    The columns are ``topic``, ``producer`` and ``seq``. Spark expands at most ``chunk`` sequence
    numbers from one row.
    """
    ranges = ((s.topic, s.producer, r) for s in manifest.streams for r in s.failed)
    return _unfolded(spark, ranges, chunk)


def summaries_frame(spark: SparkSession, manifest: LoadManifest) -> DataFrame:
    """Return the number and the checksums of acknowledged messages from the manifest.

    There is one row for each topic, producer and partition.
    """
    return spark.createDataFrame(
        [
            (stream.topic, stream.producer, p.partition, p.count, p.checksum)
            for stream in manifest.streams
            for p in stream.partitions
        ],
        "topic string, producer string, partition int, count bigint, checksum bigint",
    )


def acknowledged_ranges(stream: Stream) -> Iterator[tuple[int, int]]:
    """Yield the first and last sequence numbers of a stream's acknowledged ranges, in order."""
    first = 0
    for failed_first, failed_last in stream.failed:
        if first < failed_first:
            yield first, failed_first - 1
        first = failed_last + 1
    if first < stream.sent:
        yield first, stream.sent - 1


def _unfolded(
    spark: SparkSession,
    ranges: Iterable[tuple[str, str, tuple[int, int]]],
    chunk: int = CHUNK,
) -> DataFrame:
    chunks = [
        (topic, producer, at, min(at + chunk - 1, last))
        for topic, producer, (first, last) in ranges
        for at in range(first, last + 1, chunk)
    ]
    schema = "topic string, producer string, first bigint, last bigint"
    return spark.createDataFrame(chunks, schema).select(
        "topic", "producer", F.explode(F.sequence("first", "last")).alias("seq")
    )


# Offsets to compare, and a check that the clusters still have them. The check reports lost records
# with cluster and topic before Spark fails to read them.

_SHOWN = 3


def of_source(run: MirrorTestRun, manifest: LoadManifest) -> OffsetRange:
    """Return the offsets that the load wrote. Raise ``GaveUp`` if some were deleted."""
    planned = OffsetRange(
        source_names={t.name: t.name for t in manifest.topics},
        start={t.name: t.start_offsets for t in manifest.topics},
        end={t.name: t.end_offsets for t in manifest.topics},
    )
    _check_partitions(run.source, {t.name: t.partitions for t in manifest.topics})
    _check_offsets(run.source, planned)
    return planned


def of_target(run: MirrorTestRun, manifest: LoadManifest) -> OffsetRange:
    """Return the offsets that the target received since the start of the load.

    The range begins at the end of the target's log before the load, and at 0 in new partitions. It
    ends at the last stable offset. Missing topics are left out. Raise ``GaveUp`` if a part of the
    range was deleted.
    """
    known = {run.topics[t.name]: t.target_start_offsets for t in manifest.topics}
    _check_partitions(run.target, {name: len(starts) for name, starts in known.items()})
    there = messages.on_target(run)
    planned = OffsetRange(
        source_names={target: source for source, target in run.topics.items() if target in there},
        start={
            name: known[name] + (0,) * (count - len(known[name])) for name, count in there.items()
        },
        end=messages.ends(run.target, there),
    )
    _check_offsets(run.target, planned)
    return planned


def _check_partitions(cluster: ClusterAccess, before: dict[str, int]) -> None:
    """Raise ``GaveUp`` for a topic that has fewer partitions than before."""
    there = PatientAdmin(cluster).topics()
    for name, count in before.items():
        now = there.get(name, 0)
        if now < count:
            how = f"has {now} partitions, not {count}: it was replaced" if now else "was deleted"
            raise GaveUp(f"{cluster.alias} has lost records of this test: topic {name} {how}")


def _check_offsets(cluster: ClusterAccess, planned: OffsetRange) -> None:
    """Raise ``GaveUp`` if a log does not contain its whole range any more."""
    ranges = {
        TopicPartition(name, number): (start, planned.end[name][number])
        for name, starts in planned.start.items()
        for number, start in enumerate(starts)
    }
    admin = PatientAdmin(cluster)
    firsts = admin.offsets(ranges, Position.EARLIEST)
    ends = admin.offsets(ranges, Position.LATEST)
    lost = []
    for at, (start, end) in ranges.items():
        if ends[at] < (needed := max(start, end)):
            lost.append(
                f"{at} ends at offset {ends[at]}, and ended at {needed} before: the log was "
                "truncated, or the topic was replaced"
            )
        elif firsts[at] > start and end > start:
            lost.append(
                f"{at} begins at offset {firsts[at]}, and the test's records begin at {start}: "
                "retention or a user deleted them"
            )
    if lost:
        more = f" and {len(lost) - _SHOWN} more partitions" if len(lost) > _SHOWN else ""
        raise GaveUp(
            f"{cluster.alias} has lost records of this test: {'; '.join(lost[:_SHOWN])}{more}"
        )


_ROWS_A_PARTITION = 500_000  # of about 100 bytes: 50 MB of a task's memory, sorted in 1 s


@dataclass(frozen=True)
class ClusterComparison:
    """Result of comparing both clusters."""

    counts: Counts
    examples: dict[FindingType, tuple[Example, ...]]
    open_sentinels: tuple[str, ...]
    shares: tuple[FindingShare, ...]
    contradictions: tuple[str, ...]
    read_until_ms: int
    spark_versions: dict[str, str]


@dataclass(frozen=True)
class _Found:
    """Problems that the comparison found. By default there are none."""

    shares: list[FindingShare] = field(default_factory=list)
    examples: dict[FindingType, tuple[Example, ...]] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()


def compare(
    spark: SparkSession, run: MirrorTestRun, manifest: LoadManifest, phases: Phases
) -> ClusterComparison:
    """Read the fixed ranges and compare them.

    If the mirror preserves partitions, both clusters are read once to sum up their blocks. The
    records of doubtful blocks are then read again and compared one by one. Spark's errors are
    raised if a range cannot be read.
    """
    both = _BothSides(spark, run, manifest, phases)
    preserved = run.test.spec.partitioning is Partitioning.PRESERVED
    found = both.by_blocks() if preserved and manifest.adds_up else both.by_record()
    counted = Counter[FindingType]()
    if both.same_offsets:
        counted[FindingType.UNEQUAL_OFFSETS] = 0
    for share in found.shares:
        counted[share.kind] += share.count
    expected = [(t.name, p) for t in manifest.topics for p in range(t.partitions)]
    open_sentinels = tuple(f"{name}-{p}" for name, p in expected if (name, p) not in both.ends_seen)
    return ClusterComparison(
        counts=Counts(
            planned=run.test.spec.load.messages,
            acknowledged=manifest.acknowledged,
            sentinels=len(expected),
            sentinels_seen=len(expected) - len(open_sentinels),
            **{kind.field: total for kind, total in counted.items()},
        ),
        examples=found.examples,
        shares=tuple(sorted(found.shares, key=_rank)[:MAX_SHARES]),
        read_until_ms=both.read_until_ms,
        open_sentinels=open_sentinels,
        contradictions=found.contradictions,
        spark_versions=spark_versions(spark),
    )


class _BothSides:
    """Offset ranges of source and target, and methods that compare them."""

    def __init__(
        self, spark: SparkSession, run: MirrorTestRun, manifest: LoadManifest, phases: Phases
    ) -> None:
        self._spark, self._run, self._manifest, self._phases = spark, run, manifest, phases
        self._slots = max(
            2 * spark.sparkContext.defaultParallelism,
            manifest.acknowledged // _ROWS_A_PARTITION + 1,
        )
        spark.conf.set("spark.sql.shuffle.partitions", self._slots)
        with phases.timed("reading the end offsets"):
            self._on_source = of_source(run, manifest)
            self._on_target = of_target(run, manifest)
        self.read_until_ms = now_ms()
        self.ends_seen: set[tuple[str, int]] = set()
        """Topics and partitions of the source whose sentinel is on the target."""
        self.same_offsets = run.test.spec.budgets.unequal_offsets is not None
        """True if the mirror must preserve offsets."""
        self._claims = claims_frame(spark, manifest)
        self._size = blocks.size_of(manifest)

    def by_blocks(self) -> _Found:
        """Compare sums of blocks, then the records of doubtful blocks. Return the problems.

        The mirror must preserve partitions.
        """
        source = self._read(self._run.source, self._on_source)
        target = self._read(self._run.target, self._on_target)
        on_source, on_target = self._summaries(source, target)
        doubted = doubts(on_source, on_target, self._manifest, same_offsets=self.same_offsets)
        if not doubted.keys:
            return _Found()
        ends = sentinels_frame(self._spark, self._manifest)
        again = (
            self._read(self._run.source, doubted.where(self._on_source, on_source)),
            self._read(self._run.target, doubted.where(self._on_target, on_target)),
        )
        ends, source, target = (
            doubted.of(frame, self._run.name, self._size) for frame in (ends, *again)
        )
        streams = tuple(
            s for s in self._manifest.streams if (s.topic, s.producer) in doubted.streams
        )
        return self._one_by_one(ends, streams, self._laid_out(source), self._laid_out(target))

    def by_record(self) -> _Found:
        """Compare all records one by one, and return the problems."""
        source = self._laid_out(self._read(self._run.source, self._on_source))
        target = self._laid_out(self._read(self._run.target, self._on_target))
        self._summaries(source, target)
        ends = sentinels_frame(self._spark, self._manifest)
        return self._one_by_one(ends, self._manifest.streams, source, target)

    def _read(self, cluster: ClusterAccess, offset_range: records.OffsetRange) -> DataFrame:
        """Read a range. Return an empty DataFrame if it has no topics.

        The records of the source have the headers that a flow gives to their copies.
        """
        if not offset_range.source_names:
            return self._read(self._run.source, self._on_source).limit(0)
        run, since_ms = self._run.name, self._manifest.started_ms
        found = records.raw(self._spark, cluster, offset_range)
        if cluster == self._run.source:
            found = copied(found, self._run.changes)
        found = records.recognised(found, offset_range.source_names, run, since_ms)
        return claimed(found, self._claims)

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """Return the records partitioned for the checks' joins, and cached."""
        return frame.repartition(self._slots, *IDENTITY).persist()

    def _summaries(self, source: DataFrame, target: DataFrame) -> tuple[list[Block], list[Block]]:
        run = self._run.name

        def sums(side: DataFrame) -> list[Block]:
            found = blocks.summarised(side, run, self._size, by_offset=self.same_offsets)
            return blocks.collected(found)

        with self._phases.timed("reading the source"):
            on_source = sums(source)
        with self._phases.timed("reading the target"):
            on_target = sums(target)
        self.ends_seen |= {(b.topic, b.number) for b in on_target if b.producer == run}
        return on_source, on_target

    def _one_by_one(
        self,
        ends: DataFrame,
        streams: tuple[Stream, ...],
        source: DataFrame,
        target: DataFrame,
    ) -> _Found:
        """Compare records one by one, and return the problems.

        ``ends`` contains the sentinels of these records. ``streams`` are the streams whose records
        are all included.
        """
        manifest = self._manifest.model_copy(update={"streams": streams})
        refused = refused_frame(self._spark, manifest)
        with self._phases.timed("comparing record by record"):
            contradictions = _contradictions(self._spark, manifest, source, refused)
            # Rows for all sequence numbers take as long as reading a cluster. They can only lead to
            # findings if the source lacks acknowledged messages.
            acknowledged = ends
            if contradictions or not manifest.adds_up:
                acknowledged = ends.unionByName(acknowledged_frame(self._spark, manifest))
            findings = checks.compare(
                self._laid_out(acknowledged),
                refused,
                source,
                target,
                run=self._run.name,
                keys={t.name: t.keys for t in manifest.topics},
                partitioning=self._run.test.spec.partitioning,
                same_offsets=self.same_offsets,
            ).persist()
            shares = examples.shares(findings, self._run)
        with self._phases.timed("looking up examples"):
            shown = examples.pick(findings, source, target, self._run) if shares else {}
        return _Found(shares, shown, contradictions)


def _rank(share: FindingShare) -> tuple[int, str, str, int]:
    """Return the sort key: largest first, then by type, topic and partition."""
    return -share.count, share.kind, share.topic, share.partition or 0


def _contradictions(
    spark: SparkSession, manifest: LoadManifest, source: DataFrame, refused: DataFrame
) -> tuple[str, ...]:
    """Describe where the source's records differ from the acknowledged ones.

    At most ``MAX_EXAMPLES`` are returned.
    """
    held = source.where("own and claimed").join(refused, IDENTITY, "left_anti")
    summaries = summaries_frame(spark, manifest)
    rows = checks.contradictions(summaries, held).limit(MAX_EXAMPLES).collect()
    return tuple(f"producer {row['producer']} in {row['topic']}-{row['partition']}" for row in rows)
