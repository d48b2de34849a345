"""Baseline of comparisons: a Spark job that only reads and counts both sides.

``python -m bench.counting FOLDER OUT TOPIC...``, in the environment of a Spark job. The topics have
equal names on both sides of the folder's mirror test.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.spark_jobs import START, write_figures
from pyspark.sql import functions as F

from headrace.api import ClusterAccess, TopicPartition, load
from headrace.kafka import Admin, Position
from headrace.mirror_test import MirrorTestRun, documents
from headrace_spark.records import OffsetRange, raw
from headrace_spark.session import session


def main(folder: Path, out: Path, topics: Sequence[str]) -> None:
    """Read all compared columns of both sides, and count the records."""
    (test,) = load([folder / documents.TEST]).tests
    run = MirrorTestRun(name="count", test=test)
    phases, totals = {}, []
    began = time.monotonic()
    with session("bench-count", run.name) as spark:
        phases[START] = time.monotonic() - began
        for side, cluster in (("source", run.source), ("target", run.target)):
            began = time.monotonic()
            counted = raw(spark, cluster, _whole(cluster, topics)).agg(
                F.count("*"), F.sum(F.length("key") + F.length("value") + F.size("headers"))
            )
            (total, _), *_ = counted.collect()
            phases[f"reading the {side}"] = time.monotonic() - began
            totals.append(total)
    write_figures(out, min(totals), phases)


def _whole(cluster: ClusterAccess, topics: Sequence[str]) -> OffsetRange:
    admin = Admin(cluster)
    partitions = admin.topics()
    ats = [TopicPartition(name, n) for name in topics for n in range(partitions[name])]
    starts, ends = (
        admin.offsets(ats, position) for position in (Position.EARLIEST, Position.LAST_STABLE)
    )
    return OffsetRange(
        {name: name for name in topics},
        *(
            {name: tuple(of[at] for at in ats if at.topic == name) for name in topics}
            for of in (starts, ends)
        ),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
