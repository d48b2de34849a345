"""Errors of a job whose JVM ends."""

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from headrace.errors import GaveUp
from headrace_spark.session import reporting_its_end


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
