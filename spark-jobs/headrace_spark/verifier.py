"""Reads both clusters back, compares them exactly and judges.

The ranges are fixed before anything is read: on the source from the manifest, on the target up to
where it is once all end sentinels are there, or once ``settleSeconds`` are over.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import Partitioning, TopicPartition
from headrace.kafka import Admin, Position, assign, journal, make_consumer
from headrace.mirror_test import MAX_EXAMPLES, Counts, Example, Kind, LoadManifest, Run
from headrace_spark import checks, messages, records, topics

_ROWS_A_PARTITION = 500_000  # of about 100 bytes: 50 MB of a task's memory, sorted in 1 s
_ON_SOURCE = {Kind.MISSING, Kind.UNACKNOWLEDGED, Kind.SOURCE_LOST}


@dataclass(frozen=True)
class Comparison:
    """What the clusters hold, compared."""

    counts: Counts
    examples: dict[Kind, tuple[Example, ...]]
    open_sentinels: tuple[str, ...]
    contradictions: tuple[str, ...]
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
                    expected.discard((message.topic() or "", sighting.sentinel))
    finally:
        consumer.close()


def _from_the_end_of_the_load(
    run: Run, manifest: LoadManifest, there: dict[str, int]
) -> list[tuple[TopicPartition, int]]:
    """The first offset of each partition that is not older than the last acknowledgement."""
    partitions = [TopicPartition(name, p) for name, count in there.items() for p in range(count)]
    admin = Admin(run.target)
    ends = admin.offsets(partitions, Position.LATEST)  # first: what is written now comes after
    since = admin.offsets_at(partitions, manifest.finished_ms)
    return [(at, since[at] if since[at] >= 0 else ends[at]) for at in partitions]


def compare(spark: SparkSession, run: Run, manifest: LoadManifest) -> Comparison:
    """Read the fixed ranges and compare them. Raises Spark's errors when a range cannot be read."""
    slots = max(
        2 * spark.sparkContext.defaultParallelism,
        manifest.acknowledged // _ROWS_A_PARTITION + 1,
    )
    spark.conf.set("spark.sql.shuffle.partitions", slots)

    def laid_out(frame: DataFrame) -> DataFrame:
        """Partitioned as every check wants it, and read only once."""
        return frame.repartition(slots, *checks.IDENTITY).persist()

    source = laid_out(_read_source(spark, run, manifest)).where("sentinel is null")
    on_target = laid_out(_read_target(spark, run, manifest))
    target = on_target.where("sentinel is null")
    acknowledged = laid_out(records.acknowledged(spark, manifest))
    findings = checks.compare(
        acknowledged,
        records.refused(spark, manifest),
        source,
        target,
        keys={t.name: t.keys for t in manifest.topics},
        preserved=run.test.spec.partitioning is Partitioning.PRESERVED,
    ).persist()
    counted = {
        Kind(row["kind"]): row["total"]
        for row in findings.groupBy("kind").agg(F.sum("count").alias("total")).collect()
    }
    contradictions = (
        checks.contradictions(records.summaries(spark, manifest), acknowledged, source)
        .limit(MAX_EXAMPLES)
        .collect()
    )
    seen = {
        (row["topic"], row["sentinel"])
        for row in on_target.where("sentinel is not null")
        .select("topic", "sentinel")
        .distinct()
        .collect()  # one a partition at most
    }
    expected = [(t.name, p) for t in manifest.topics for p in range(t.partitions)]
    open_sentinels = tuple(f"{name}-{p}" for name, p in expected if (name, p) not in seen)
    return Comparison(
        counts=Counts(
            planned=run.test.spec.load.messages,
            acknowledged=manifest.acknowledged,
            missing=counted.get(Kind.MISSING, 0),
            duplicated=counted.get(Kind.DUPLICATED, 0),
            reordered=counted.get(Kind.REORDERED, 0),
            corrupted=counted.get(Kind.CORRUPTED, 0),
            alien=counted.get(Kind.ALIEN, 0),
            unacknowledged=counted.get(Kind.UNACKNOWLEDGED, 0),
            source_lost=counted.get(Kind.SOURCE_LOST, 0),
            sentinels=len(expected),
            sentinels_seen=len(expected) - len(open_sentinels),
        ),
        examples={kind: _examples(findings, kind, run) for kind in counted},
        open_sentinels=open_sentinels,
        contradictions=tuple(
            f"producer {row['producer']} in {row['topic']}-{row['partition']}"
            for row in contradictions
        ),
        spark_versions={
            "spark": spark.version,
            "java": spark.sql(
                "select java_method('java.lang.System', 'getProperty', 'java.version')"
            ).collect()[0][0],
        },
    )


def _read_source(spark: SparkSession, run: Run, manifest: LoadManifest) -> DataFrame:
    return records.read(
        spark,
        run.source,
        source_names={t.name: t.name for t in manifest.topics},
        start={t.name: t.start_offsets for t in manifest.topics},
        end={t.name: t.end_offsets for t in manifest.topics},
        run=run.name,
    )


def _read_target(spark: SparkSession, run: Run, manifest: LoadManifest) -> DataFrame:
    """From where the target was before the load (a partition that was not there yet: from its
    beginning) to where it is now. A topic that is not there holds nothing."""
    there = topics.on_target(run)
    if not there:
        return _read_source(spark, run, manifest).limit(0)
    source_names = {target: source for source, target in run.topics.items() if target in there}
    known = {run.topics[t.name]: t.target_start_offsets for t in manifest.topics}
    start = {name: known[name] + (0,) * (count - len(known[name])) for name, count in there.items()}
    return records.read(
        spark,
        run.target,
        source_names=source_names,
        start=start,
        end=topics.ends(run.target, there),
        run=run.name,
    )


def _examples(findings: DataFrame, kind: Kind, run: Run) -> tuple[Example, ...]:
    rows = (
        findings.where(F.col("kind") == str(kind))
        .orderBy("topic", "partition", "offset", "producer", "seq")
        .limit(MAX_EXAMPLES)
        .collect()
    )
    return tuple(
        Example(
            topic=row["topic"] if kind in _ON_SOURCE else run.topics[row["topic"]],
            partition=row["partition"],
            offset=row["offset"],
            producer=row["producer"],
            seq=row["seq"],
            differs=row["differs"],
        )
        for row in rows
    )
