"""The Spark session of a job.

Only what the jobs' correctness needs is set here. Where Spark runs, with how much memory and which
jars, is set from outside (spark-submit, ``PYSPARK_SUBMIT_ARGS``), so the same scripts run in local
mode and on a cluster.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import GaveUp

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
    """A session for one job of one run. Raises ``GaveUp`` when its JVM does not start, or ends."""
    builder = SparkSession.builder.appName(f"headrace-{job}-{run}")
    for name, value in _OURS.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise GaveUp(f"Spark did not start: {' '.join(str(error).split())[:600]}") from error
    with reporting_its_end(spark):
        yield spark


@contextmanager
def reporting_its_end(spark: SparkSession) -> Iterator[None]:
    """Stop the session in the end; raise ``GaveUp`` where its JVM was killed: all that Python sees
    of that are connections that break."""
    try:
        yield
        spark.stop()
    except (Py4JError, OSError) as error:
        if _answers(spark):
            spark.stop()
            raise
        raise GaveUp(
            "Spark's JVM ended while it worked: it was killed, or had no memory left"
        ) from error
    except BaseException:
        with suppress(Py4JError, OSError):
            spark.stop()
        raise


def _answers(spark: SparkSession) -> bool:
    """Whether the JVM is there."""
    try:
        _ = spark.version
    except (Py4JError, OSError):
        return False
    return True
