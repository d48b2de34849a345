"""Lanes that are created in a pool, and received by the loop."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.connect.source.copying import Lanes


class Lane:
    """Lane that is only open or closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Making:
    """Factory of lanes that calls ``then`` before a lane exists."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.then: Callable[[], None] = lambda: None
        self.pool = ThreadPoolExecutor(1)
        self.lanes = Lanes(self._make, self.pool)

    def _make(self) -> Any:
        self.then()
        self.made.append(Lane())
        return self.made[-1]


def test_a_lane_is_made_once_and_taken_once() -> None:
    making = Making()
    making.lanes.prepare()
    making.lanes.prepare()
    assert len(making.made) == 1
    assert making.lanes.take() is making.made[0]
    making.lanes.prepare()
    assert making.lanes.take() is making.made[1]


def test_one_that_was_not_prepared_is_made() -> None:
    making = Making()
    assert making.lanes.take() is making.made[0]


def test_what_nobody_took_is_closed_in_the_end() -> None:
    making = Making()
    making.lanes.prepare()
    making.lanes.end()
    making.pool.shutdown()
    assert making.made[0].closed
    making.lanes.prepare()
    assert len(making.made) == 1


def test_a_lane_that_comes_too_late_is_closed() -> None:
    making = Making()
    making.then = making.lanes.end
    making.lanes.prepare()
    assert making.made[0].closed
