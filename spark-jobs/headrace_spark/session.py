"""The Spark session of a job.

Only what the jobs' correctness needs is set here. Where Spark runs, with how much memory and which
jars, is said from outside (spark-submit, ``PYSPARK_SUBMIT_ARGS``), so the same scripts run in local
mode and on a cluster.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_OURS = {
    # An action that runs twice sends or counts twice.
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    # A stage that needs more slots than there are says so at once, not after ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "30",
    # Both sides of every join are partitioned alike and large: no sort needed.
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark's own words for what it must not show, and those of Kafka's settings that hold secrets.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore",
    # What is kept are hashes and numbers: packing them costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}


@contextmanager
def session(job: str, run: str) -> Iterator[SparkSession]:
    """A session for one job of one run."""
    builder = SparkSession.builder.appName(f"headrace-{job}-{run}")
    for name, value in _OURS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
