"""The comparison's baselines: reading and counting both sides; the checks alone.

``python -m bench.verify.spark count|check FOLDER OUT``, in the environment of a Spark job.
"""

import json
import sys
import time
from pathlib import Path

from bench.verify.clusters import RUN
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import load
from headrace.mirror_test import LoadManifest, MirrorTestRun, documents
from headrace_spark import blocks, comparison, records
from headrace_spark.checks import IDENTITY
from headrace_spark.session import session

_IN_MEMORY = 5_000_000
"""Records of each side: 100 bytes a record, in the 1.5 GiB of the comparison."""


def main(verb: str, folder: Path, out: Path) -> None:
    """Measure one of the two, and write it down."""
    (test,) = load([folder / documents.TEST]).tests
    manifest = documents.read(folder / documents.MANIFEST, LoadManifest)
    assert manifest is not None
    with session(f"bench-{verb}", RUN) as spark:
        measure = {"count": count, "check": check}[verb]
        each, phases = measure(spark, MirrorTestRun(name=RUN, test=test), manifest)
    figures = {"records": each, "seconds": sum(phases.values()), "phases": phases}
    out.write_text(json.dumps(figures))


def count(
    spark: SparkSession, run: MirrorTestRun, manifest: LoadManifest
) -> tuple[int, dict[str, float]]:
    """Read all compared columns of both sides, and count the records."""
    phases = {}
    for side, cluster, wanted in (
        ("reading the source", run.source, comparison.of_source(run, manifest)),
        ("reading the target", run.target, comparison.of_target(run, manifest)),
    ):
        began = time.monotonic()
        counted = records.raw(spark, cluster, wanted).agg(
            F.count("*"), F.sum(F.length("key") + F.length("value") + F.size("headers"))
        )
        (total, _), *_ = counted.collect()
        phases[side] = time.monotonic() - began
        assert total >= manifest.acknowledged
    return manifest.acknowledged, phases


def check(
    spark: SparkSession, _: MirrorTestRun, manifest: LoadManifest
) -> tuple[int, dict[str, float]]:
    """Run the checks alone, on good records only.

    Both sides have as many records as the load, ``_IN_MEMORY`` at most.
    """
    each = min(manifest.acknowledged, _IN_MEMORY)
    slots = spark.sparkContext.defaultParallelism * 2
    spark.conf.set("spark.sql.shuffle.partitions", slots)
    source, target = (_in_memory(spark, each, slots) for _ in range(2))
    began = time.monotonic()
    size = blocks.size_of(manifest)
    here, there = (
        {block.place: block for block in blocks.collected(blocks.summarised(side, RUN, size))}
        for side in (source, target)
    )
    assert here.keys() == there.keys()
    assert all(block.agrees_with(there[place]) for place, block in here.items())
    return each, {"checks": time.monotonic() - began}


def _in_memory(spark: SparkSession, count: int, slots: int) -> DataFrame:
    seq = F.col("id")
    laid_out = (
        spark.range(count)
        .select(
            F.lit("t").alias("topic"),
            F.lit(f"{RUN}-0-0").alias("producer"),
            seq.alias("seq"),
            F.lit(True).alias("own"),
            F.lit(True).alias("claimed"),
            F.lit("t").alias("found_in"),
            (seq % 8).cast("int").alias("partition"),
            F.floor(seq / 8).alias("offset"),
            F.floor(seq / 8).alias("row"),
            (seq % 8).cast("string").cast("binary").alias("key"),
            F.xxhash64("id").alias("value_hash"),
            F.xxhash64("id", F.lit(1)).alias("headers_hash"),
            seq.alias("timestamp_ms"),
            seq.alias("checksum"),
        )
        .repartition(slots, *IDENTITY)
        .persist()
    )
    laid_out.count()
    return laid_out


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
