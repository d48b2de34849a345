"""Reads both clusters back and compares them exactly.

The ranges are fixed before anything is read: on the source from the manifest, on the target up to
where it is once all end sentinels are there, or once ``settleSeconds`` are over.
"""

from collections import Counter
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from headrace.api import ClusterAccess, Partitioning
from headrace.mirror_test import (
    MAX_EXAMPLES,
    MAX_SHARES,
    Counts,
    Example,
    Kind,
    LoadManifest,
    Run,
    Share,
    Stream,
)
from headrace_spark import blocks, checks, examples, manifest_frames, ranges, records
from headrace_spark.blocks import Block
from headrace_spark.clocks import now_ms
from headrace_spark.doubts import doubts
from headrace_spark.findings import IDENTITY
from headrace_spark.phases import Phases

_ROWS_A_PARTITION = 500_000  # of about 100 bytes: 50 MB of a task's memory, sorted in 1 s


@dataclass(frozen=True)
class Comparison:
    """What the clusters hold, compared."""

    counts: Counts
    examples: dict[Kind, tuple[Example, ...]]
    open_sentinels: tuple[str, ...]
    shares: tuple[Share, ...]
    contradictions: tuple[str, ...]
    read_until_ms: int
    spark_versions: dict[str, str]


@dataclass(frozen=True)
class _Found:
    """What is wrong; by default nothing."""

    shares: list[Share] = field(default_factory=list)
    examples: dict[Kind, tuple[Example, ...]] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()


def compare(spark: SparkSession, run: Run, manifest: LoadManifest, phases: Phases) -> Comparison:
    """Read the fixed ranges and compare them. Raises Spark's errors when a range cannot be read.

    Where partitions are preserved, both sides are read once, for the sums of their blocks, and what
    these leave in doubt once more, to be compared record by record.
    """
    both = _BothSides(spark, run, manifest, phases)
    preserved = run.test.spec.partitioning is Partitioning.PRESERVED
    found = both.by_blocks() if preserved and manifest.adds_up else both.by_record()
    counted = Counter[Kind]()
    if both.same_offsets:
        counted[Kind.UNEQUAL_OFFSETS] = 0
    for share in found.shares:
        counted[share.kind] += share.count
    expected = [(t.name, p) for t in manifest.topics for p in range(t.partitions)]
    open_sentinels = tuple(f"{name}-{p}" for name, p in expected if (name, p) not in both.ends_seen)
    return Comparison(
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
        spark_versions={
            "spark": spark.version,
            "java": spark.sql(
                "select java_method('java.lang.System', 'getProperty', 'java.version')"
            ).collect()[0][0],
        },
    )


class _BothSides:
    """Source and target, each between two offsets of its partitions."""

    def __init__(
        self, spark: SparkSession, run: Run, manifest: LoadManifest, phases: Phases
    ) -> None:
        self._spark, self._run, self._manifest, self._phases = spark, run, manifest, phases
        self._slots = max(
            2 * spark.sparkContext.defaultParallelism,
            manifest.acknowledged // _ROWS_A_PARTITION + 1,
        )
        spark.conf.set("spark.sql.shuffle.partitions", self._slots)
        with phases.timed("asking for the logs' ends"):
            self._on_source = ranges.of_source(run, manifest)
            self._on_target = ranges.of_target(run, manifest)
        self.read_until_ms = now_ms()
        self.ends_seen: set[tuple[str, int]] = set()
        """Topics and partitions of the source whose sentinel is on the target."""
        self.same_offsets = run.test.spec.budgets.unequal_offsets is not None
        """Whether the mirror has to keep them."""
        self._claims = manifest_frames.claims(spark, manifest)
        self._size = blocks.size_of(manifest)

    def by_blocks(self) -> _Found:
        """What is wrong where partitions are preserved."""
        source = self._read(self._run.source, self._on_source)
        target = self._read(self._run.target, self._on_target)
        on_source, on_target = self._summaries(source, target)
        doubted = doubts(on_source, on_target, self._manifest, same_offsets=self.same_offsets)
        if not doubted.keys:
            return _Found()
        ends = manifest_frames.sentinels(self._spark, self._manifest)
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
        """What is wrong; everything is compared record by record."""
        source = self._laid_out(self._read(self._run.source, self._on_source))
        target = self._laid_out(self._read(self._run.target, self._on_target))
        self._summaries(source, target)
        ends = manifest_frames.sentinels(self._spark, self._manifest)
        return self._one_by_one(ends, self._manifest.streams, source, target)

    def _read(self, cluster: ClusterAccess, wanted: records.Range) -> DataFrame:
        """Nothing where there are no topics."""
        if not wanted.source_names:
            return self._read(self._run.source, self._on_source).limit(0)
        run, since_ms = self._run.name, self._manifest.started_ms
        found = records.read(self._spark, cluster, wanted, run, since_ms)
        return manifest_frames.claimed(found, self._claims)

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """Partitioned as every check wants it, and read only once."""
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
        """Compare records. ``ends``: the sentinels among them; ``streams``: those of which all are
        there."""
        manifest = self._manifest.model_copy(update={"streams": streams})
        refused = manifest_frames.refused(self._spark, manifest)
        with self._phases.timed("comparing record by record"):
            contradictions = _contradictions(self._spark, manifest, source, refused)
            # A row for every number that was sent takes as long as reading a cluster: only where
            # the source lacks some of them is there anything to be found by it.
            acknowledged = ends
            if contradictions or not manifest.adds_up:
                acknowledged = ends.unionByName(manifest_frames.acknowledged(self._spark, manifest))
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


def _rank(share: Share) -> tuple[int, str, str, int]:
    """The largest first, then by place."""
    return -share.count, share.kind, share.topic, share.partition or 0


def _contradictions(
    spark: SparkSession, manifest: LoadManifest, source: DataFrame, refused: DataFrame
) -> tuple[str, ...]:
    """Where the source does not hold what it acknowledged; some of them, in words."""
    held = source.where("own and claimed").join(refused, IDENTITY, "left_anti")
    summaries = manifest_frames.summaries(spark, manifest)
    rows = checks.contradictions(summaries, held).limit(MAX_EXAMPLES).collect()
    return tuple(f"producer {row['producer']} in {row['topic']}-{row['partition']}" for row in rows)
