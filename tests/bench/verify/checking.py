"""The comparison's checks alone, on records in memory.

``python -m bench.verify.checking FOLDER OUT``, in the environment of a Spark job.
"""

import sys
import time
from pathlib import Path

from bench.spark_jobs import START, write_figures
from bench.verify.clusters import RUN
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.mirror_test import LoadManifest, documents
from headrace_spark import blocks
from headrace_spark.checks import IDENTITY
from headrace_spark.session import session

_IN_MEMORY = 5_000_000
"""Records of each side: 100 bytes a record, in the 1.5 GiB of the comparison."""


def main(folder: Path, out: Path) -> None:
    """Run the checks on good records only.

    Both sides have as many records as the load, ``_IN_MEMORY`` at most.
    """
    manifest = documents.read(folder / documents.MANIFEST, LoadManifest)
    assert manifest is not None
    each = min(manifest.acknowledged, _IN_MEMORY)
    began = time.monotonic()
    with session("bench-check", RUN) as spark:
        slots = spark.sparkContext.defaultParallelism * 2
        spark.conf.set("spark.sql.shuffle.partitions", slots)
        source, target = (_in_memory(spark, each, slots) for _ in range(2))
        laid_out = time.monotonic()
        size = blocks.size_of(manifest)
        here, there = (
            {block.place: block for block in blocks.collected(blocks.summarised(side, RUN, size))}
            for side in (source, target)
        )
        assert here.keys() == there.keys()
        assert all(block.agrees_with(there[place]) for place, block in here.items())
        checked = time.monotonic()
    write_figures(out, each, {START: laid_out - began, "checks": checked - laid_out})


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
    main(Path(sys.argv[1]), Path(sys.argv[2]))
