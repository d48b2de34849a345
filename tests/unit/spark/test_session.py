"""Errors of a job whose JVM ends, and messages of errors from Spark."""

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from headrace.errors import GaveUp
from headrace_spark.session import reporting_its_end, spark_sentence


class Session:
    """Spark session whose JVM may have been killed."""

    def __init__(self, lives: bool = True) -> None:
        self._lives, self.stopped = lives, False

    @property
    def version(self) -> str:
        self._call()
        return "4"

    def stop(self) -> None:
        self._call()
        self.stopped = True

    def _call(self) -> None:
        if not self._lives:
            raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("sign", [Py4JNetworkError("Answer from Java side is empty"), OSError()])
def test_a_killed_jvm_is_a_sentence(sign: Exception) -> None:
    spark: Any = Session(lives=False)
    with pytest.raises(GaveUp, match="Spark's JVM ended while it worked"), reporting_its_end(spark):
        raise sign


def test_a_jvm_that_ends_at_its_stop_is_a_sentence() -> None:
    spark: Any = Session(lives=False)
    with pytest.raises(GaveUp, match="JVM ended"), reporting_its_end(spark):
        pass


def test_an_error_of_spark_stays_what_it_is() -> None:
    spark: Any = Session()
    with pytest.raises(Py4JError, match="a range"), reporting_its_end(spark):
        raise Py4JError("a range is gone")
    assert spark.stopped


def test_any_other_error_stays_what_it_is() -> None:
    spark: Any = Session()
    with pytest.raises(KeyError), reporting_its_end(spark):
        raise KeyError("a bug")
    assert spark.stopped


OF_A_TASK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.
: org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 0 (collect at p.py)
org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker: {}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:1063)

\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1063)
"""
TRACEBACK = """Traceback (most recent call last):
  File "pyspark/worker.py", line 3622, in main
    process()
    ^^^^^^^^^
{}"""
CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"


def raised(*errors: str) -> str:
    return CAUSE.join(TRACEBACK.format(error) for error in errors)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            OF_A_TASK.format(raised("headrace.errors.GaveUp: could not read t of west in 30 s")),
            "a Spark task failed: could not read t of west in 30 s",
        ),
        (
            OF_A_TASK.format(raised("OSError: reset", "ValueError: two\n  lines")),
            "a Spark task failed: ValueError: two lines",
        ),
        (raised("KeyError: 'id'"), "a Spark task failed: KeyError: 'id'"),
        (
            "[TABLE_NOT_FOUND] No table.\nCheck its name.\n\tat org.apache.spark.Main\n",
            "Spark failed: [TABLE_NOT_FOUND] No table. Check its name.",
        ),
    ],
    ids=["headrace's own", "chained", "of a PySparkException", "not of Python code"],
)
def test_the_message_of_a_spark_error_names_its_cause(text: str, sentence: str) -> None:
    assert spark_sentence(Py4JError(text)) == sentence
