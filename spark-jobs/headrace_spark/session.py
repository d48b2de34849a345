"""Spark session of a job, its clocks, output, phases and versions.

Only settings that the jobs require for correct results or speed are set here. The master, memory
and jars are set by spark-submit, or by ``toolchain.spark.local_spark``, so the same scripts run
in local mode and on a cluster.
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import dropwhile, takewhile
from platform import python_version

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace import logs
from headrace.errors import GaveUp
from headrace.mirror_test import Phase, compiler_options

_OURS = {
    # An action that runs twice sends or counts records twice.
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    # Report after a minute, not after ten, that a stage needs more slots than exist.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "30",
    # Both sides of every join have equal, large partitions, which need no sort.
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark's default pattern for secrets, and Kafka's settings that contain secrets.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore",
    # Cached data consist of hashes and numbers. Compressing them costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Errors of Spark while its JVM responds.

PySpark converts only some Java exceptions. The error of a failed task is a ``Py4JJavaError``.
"""


@contextmanager
def session(job: str, run: str, records: int | None = None) -> Iterator[SparkSession]:
    """Yield a Spark session for one job of a run.

    Args:
        job: Name of the job.
        run: Name of the run.
        records: Records of each cluster to compare, or None if their number is unknown. Small
            comparisons run without the optimizing compiler, unless spark-submit started the JVM.

    Raises:
        GaveUp: The JVM did not start, or it ended.
    """
    builder = SparkSession.builder.appName(f"headrace-{job}-{run}")
    for name, value in _OURS.items():
        builder = builder.config(name, value)
    if options := compiler_options(records):
        # These options precede spark.driver.extraJavaOptions, which the environment sets.
        builder = builder.config("spark.driver.defaultJavaOptions", options)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise GaveUp(f"Spark did not start: {' '.join(str(error).split())[:600]}") from error
    with reporting_its_end(spark):
        yield spark


@contextmanager
def reporting_its_end(spark: SparkSession) -> Iterator[None]:
    """Stop the session at the end of the block. Raise ``GaveUp`` if its JVM was killed.

    Python notices a killed JVM only by broken connections.
    """
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
    """Return True if the JVM responds."""
    try:
        _ = spark.version
    except (Py4JError, OSError):
        return False
    return True


_BEGAN_NS = time.time_ns() - time.monotonic_ns()


def now_ms() -> int:
    """Return the wall-clock time in ms, which is stored and compared with other machines."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return a monotonic time in ms, for comparisons within this process."""
    return (_BEGAN_NS + time.monotonic_ns()) // 1_000_000


def event(name: str, **facts: object) -> None:
    """Print an event of the job as a line of JSON, which ``headrace verify`` reads."""
    sys.stdout.write(json.dumps({"event": name, **facts}) + "\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """Print a message for the user. The last message explains why a job ended."""
    sys.stderr.write(f"{logs.message(sentence)}\n")


_TRACEBACK = "Traceback (most recent call last):\n"
_OWN_ERROR = re.compile(r"^headrace[\w.]*: ")


def spark_sentence(error: Exception) -> str:
    """Return a message for a Spark error, without stack traces.

    If Python code failed in a task, the message contains its exception. Otherwise it contains the
    first lines of the error.
    """
    _, traceback, trace = str(error).rpartition(_TRACEBACK)
    if traceback:
        sentence = _OWN_ERROR.sub("", _python_error(trace))
        return f"a Spark task failed: {sentence[:600]}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = " ".join(line for line in lines[:3] if not line.startswith("at "))
    return f"Spark failed: {sentence[:600]}"


def _python_error(trace: str) -> str:
    """Return the exception after the frames of a traceback, without the JVM's stack trace."""
    after = dropwhile(lambda line: line.startswith(" "), trace.splitlines())
    lines = takewhile(lambda line: not line.startswith(("\tat ", " SQLSTATE")), after)
    return " ".join(" ".join(lines).split())


log = logs.get_logger(__name__)


class Phases:
    """Phases of the job that have ended, with their durations."""

    def __init__(self) -> None:
        self._ended: list[Phase] = []

    @property
    def ended(self) -> tuple[Phase, ...]:
        """Phases in the order in which they ended."""
        return tuple(self._ended)

    def add(self, name: str, seconds: float) -> None:
        """Add and log a phase with its duration."""
        phase = Phase(name=name, seconds=round(max(0.0, seconds), 2))
        self._ended.append(phase)
        log.info("phase ended", phase=phase.name, seconds=phase.seconds)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a block as a phase."""
        started_s = time.monotonic()
        yield
        self.add(name, time.monotonic() - started_s)


def versions() -> dict[str, str]:
    """Return the versions of Python, headrace, PySpark and the Kafka client."""
    libraries = ("headrace", "pyspark", "confluent-kafka")
    return {"python": python_version()} | {name: version(name) for name in libraries}


def spark_versions(spark: SparkSession) -> dict[str, str]:
    """Return the versions of Spark and Java."""
    java = spark.sql("select java_method('java.lang.System', 'getProperty', 'java.version')")
    return {"spark": spark.version, "java": java.collect()[0][0]}
