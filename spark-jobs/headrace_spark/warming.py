"""What a comparison does, done once before it begins: a JVM's first query takes six seconds longer
than its second (classes to load, code to compile)."""

import sys
from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import Admin, Position, journal
from headrace.mirror_test import LoadManifest, Run, journal_keys
from headrace_spark import blocks, manifest_frames, records, topics
from headrace_spark.clocks import now_ms

_MOST = 1_000  # records of the journal


def warm_up(spark: SparkSession, run: Run) -> None:
    """Read the end of the journal as a cluster is read, and sum it up as the records of a side.

    Where that fails the comparison is only slower: what is wrong with the cluster it says itself.
    """
    began_ms = now_ms()
    with suppress(PySparkException, HeadraceError):
        journal.create(run.source)
        journal.write(run.source, run.name, journal_keys.WARM_UP, "{}")
        _summarise(spark, run)
        sys.stderr.write(f"warming up took {(now_ms() - began_ms) / 1000:.2f} s\n")


def _summarise(spark: SparkSession, run: Run) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
    at = TopicPartition(journal.TOPIC, 0)
    first = Admin(run.source).offsets([at], Position.EARLIEST)[at]
    end = topics.ends(run.source, {journal.TOPIC: 1})
    wanted = records.Range(
        source_names={journal.TOPIC: journal.TOPIC},
        start={journal.TOPIC: (max(first, *(last - _MOST for last in end[journal.TOPIC])),)},
        end=end,
    )
    nothing = LoadManifest(
        run=run.name, topics=(), streams=(), started_ms=0, finished_ms=0, acknowledged_per_second=()
    )
    found = records.read(spark, run.source, wanted, run.name, since_ms=0)
    claimed = manifest_frames.claimed(found, manifest_frames.claims(spark, nothing))
    blocks.collected(blocks.summarised(claimed, run.name, blocks.size_of(nothing)))
