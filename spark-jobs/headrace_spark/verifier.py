"""Reads both clusters back, compares them exactly and judges.

The ranges are fixed before anything is read: on the source from the manifest, on the target up to
where it is once all end sentinels are there, or once ``settleSeconds`` are over.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import ClusterAccess, Partitioning, TopicPartition
from headrace.kafka import Admin, Position, assign, journal, make_consumer
from headrace.mirror_test import (
    MAX_EXAMPLES,
    MAX_SHARES,
    Counts,
    Example,
    Kind,
    LoadManifest,
    Run,
    Share,
)
from headrace_spark import checks, examples, messages, ranges, records, topics
from headrace_spark.phases import Phases

_ROWS_A_PARTITION = 500_000  # of about 100 bytes: 50 MB of a task's memory, sorted in 1 s
_POLL_S = 0.5
_FIELDS = {kind: str(kind) for kind in Kind} | {Kind.SOURCE_LOST: "source_lost"}
"""Of ``Counts``."""


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


def wait_for_sentinels(run: Run, manifest: LoadManifest, on_wait: Callable[[int], None]) -> None:
    """Return when every end sentinel is on the target, or the time it has is over.

    Only a moment to begin: what arrived is decided by reading the whole range afterwards.
    ``on_wait`` gets the number of sentinels that are still open, now and then.
    """
    deadline_s = manifest.finished_ms / 1000 + run.test.spec.settle_seconds
    expected = {(run.topics[t.name], p) for t in manifest.topics for p in range(t.partitions)}
    assigned: dict[str, int] = {}
    consumer = make_consumer(run.target)
    try:
        while expected and time.time() < deadline_s:
            there = topics.on_target(run)
            if there != assigned:
                assign(consumer, _from_the_end_of_the_load(run, manifest, there))
                assigned = there
            on_wait(len(expected))
            refresh_at = time.monotonic() + 1
            while expected and time.monotonic() < refresh_at:
                message = consumer.poll(0.1)
                if message is None or not journal.is_record(message, "read the end sentinels"):
                    continue
                sighting = messages.recognise(message, run.name.encode())
                if sighting is not None and sighting.sentinel is not None:
                    # It has arrived, wherever it lies; a wrong place is for the comparison.
                    topic = run.topics.get(sighting.topic or "", message.topic() or "")
                    expected.discard((topic, sighting.sentinel))
    finally:
        consumer.close()


def wait_for_all(run: Run, manifest: LoadManifest) -> None:
    """Return when the target has as many records as were sent, or the time it has is over.

    Where partitions are not preserved, a sentinel says nothing of the records of other partitions:
    they may still be on their way. Whether it is these records, the comparison decides.
    """
    sent = manifest.acknowledged + sum(t.partitions for t in manifest.topics)
    known = {run.topics[t.name]: sum(t.target_start_offsets) for t in manifest.topics}
    while time_left_s(run, manifest) > 0:
        ends = topics.ends(run.target, topics.on_target(run))
        if sum(sum(ends[name]) - known[name] for name in ends) >= sent:
            return
        time.sleep(_POLL_S)


def time_left_s(run: Run, manifest: LoadManifest) -> float:
    """How long records may still arrive that no sentinel answers for; 0 where the partitions are
    preserved: there each has its own."""
    if run.test.spec.partitioning is Partitioning.PRESERVED:
        return 0.0
    deadline_s = manifest.finished_ms / 1000 + run.test.spec.settle_seconds
    return max(deadline_s - time.time(), 0.0)


def _from_the_end_of_the_load(
    run: Run, manifest: LoadManifest, there: dict[str, int]
) -> list[tuple[TopicPartition, int]]:
    """The first offset of each partition that is not older than the last acknowledgement."""
    partitions = [TopicPartition(name, p) for name, count in there.items() for p in range(count)]
    admin = Admin(run.target)
    ends = admin.offsets(partitions, Position.LATEST)  # first: what is written now comes after
    since = admin.offsets_at(partitions, manifest.finished_ms)
    return [(at, since[at] if since[at] >= 0 else ends[at]) for at in partitions]


def compare(spark: SparkSession, run: Run, manifest: LoadManifest, phases: Phases) -> Comparison:
    """Read the fixed ranges and compare them. Raises Spark's errors when a range cannot be read."""
    slots = max(
        2 * spark.sparkContext.defaultParallelism,
        manifest.acknowledged // _ROWS_A_PARTITION + 1,
    )
    spark.conf.set("spark.sql.shuffle.partitions", slots)

    def laid_out(frame: DataFrame) -> DataFrame:
        """Partitioned as every check wants it, and read only once."""
        return frame.repartition(slots, *checks.IDENTITY).persist()

    since_ms = manifest.started_ms
    with phases.timed("asking for the logs' ends"):
        on_source, on_target = ranges.of_source(run, manifest), ranges.of_target(run, manifest)
    read_until_ms = time.time_ns() // 1_000_000
    claims, refused = records.claims(spark, manifest), records.refused(spark, manifest)

    def read(cluster: ClusterAccess, wanted: records.Range) -> DataFrame:
        found = records.read(spark, cluster, wanted, run.name, since_ms)
        return laid_out(records.claimed(found, claims))

    source = read(run.source, on_source)
    target = read(run.target, on_target) if on_target.source_names else source.limit(0)
    with phases.timed("reading the source"):
        contradictions = _contradictions(spark, manifest, source, refused)
    # A row for every number that was sent takes as long as reading a cluster: only where the source
    # lacks some of them is there anything to be found by it.
    acknowledged = records.sentinels(spark, manifest)
    if contradictions or not manifest.adds_up:
        acknowledged = acknowledged.unionByName(records.acknowledged(spark, manifest))
    findings = checks.compare(
        laid_out(acknowledged),
        refused,
        source,
        target,
        run=run.name,
        keys={t.name: t.keys for t in manifest.topics},
        partitioning=run.test.spec.partitioning,
    ).persist()
    with phases.timed("reading the target, and comparing"):
        shares = examples.shares(findings, run)
    counted = Counter[Kind]()
    for share in shares:
        counted[share.kind] += share.count
    with phases.timed("looking up examples"):
        shown = examples.pick(findings, source, target, run) if counted else {}
    seen = {
        (row["topic"], row["seq"])
        for row in target.where(F.col("producer") == run.name)
        .select("topic", "seq")
        .distinct()
        .collect()  # one a partition at most, and what somebody made up
    }
    expected = [(t.name, p) for t in manifest.topics for p in range(t.partitions)]
    open_sentinels = tuple(f"{name}-{p}" for name, p in expected if (name, p) not in seen)
    return Comparison(
        counts=Counts(
            planned=run.test.spec.load.messages,
            acknowledged=manifest.acknowledged,
            sentinels=len(expected),
            sentinels_seen=len(expected) - len(open_sentinels),
            **{_FIELDS[kind]: total for kind, total in counted.items()},
        ),
        examples=shown,
        shares=tuple(sorted(shares, key=_rank)[:MAX_SHARES]),
        read_until_ms=read_until_ms,
        open_sentinels=open_sentinels,
        contradictions=contradictions,
        spark_versions={
            "spark": spark.version,
            "java": spark.sql(
                "select java_method('java.lang.System', 'getProperty', 'java.version')"
            ).collect()[0][0],
        },
    )


def _rank(share: Share) -> tuple[int, str, str, int]:
    """The largest first, then by place."""
    return -share.count, share.kind, share.topic, share.partition or 0


def _contradictions(
    spark: SparkSession, manifest: LoadManifest, source: DataFrame, refused: DataFrame
) -> tuple[str, ...]:
    """Where the source does not hold what it acknowledged; some of them, in words."""
    held = source.where("own and claimed").join(refused, checks.IDENTITY, "left_anti")
    summaries = records.summaries(spark, manifest)
    rows = checks.contradictions(summaries, held).limit(MAX_EXAMPLES).collect()
    return tuple(f"producer {row['producer']} in {row['topic']}-{row['partition']}" for row in rows)
