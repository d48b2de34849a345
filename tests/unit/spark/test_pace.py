"""Rate of a producer, on a clock of the test."""

import random
from collections.abc import Callable

import pytest

from headrace_spark.sender import UNBOUNDED_GRANT, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def sent_times(
    rate: float, seconds: float, cost_s: Callable[[int], float], stalls: dict[int, float]
) -> list[float]:
    """Return the time of each message. A grant takes ``cost_s``, and some grants stall."""
    clock = Clock()
    pace = Pace(rate, clock, clock.sleep)
    times: list[float] = []
    number = 0
    while clock.now < 100 + seconds:
        granted = pace.grant()
        clock.now += stalls.get(number, 0)
        for _ in range(granted):
            clock.now += cost_s(granted) / granted
            times.append(clock.now)
        number += 1
    return times


def most_in_a_second(times: list[float]) -> int:
    most = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize("rate", [1, 7, 50, 333, 1_000, 10_050, 20_000])
def test_the_rate_is_reached_and_never_exceeded_in_any_second(rate: int) -> None:
    times = sent_times(rate, 20, lambda granted: 5e-6 * granted, {})
    assert most_in_a_second(times) <= rate
    assert len(times) / 20 > 0.95 * rate - 1


@pytest.mark.parametrize("seed", range(5))
def test_nor_after_stalls(seed: int) -> None:
    chance = random.Random(seed)
    stalls = {chance.randrange(400): chance.choice([0.05, 0.3, 1.5, 4]) for _ in range(8)}
    costs = lambda granted: granted * chance.choice([1e-6, 2e-5])  # noqa: E731
    assert most_in_a_second(sent_times(2_000, 20, costs, stalls)) <= 2_000


def test_what_a_stall_missed_does_not_come_back_in_one_burst() -> None:
    clock = Clock()
    pace = Pace(1_000, clock, clock.sleep)
    pace.grant()
    clock.now += 10
    assert pace.grant() <= 100


def test_without_a_rate_it_never_waits() -> None:
    clock = Clock()
    assert Pace(None, clock, clock.sleep).grant() == UNBOUNDED_GRANT
    assert clock.now == 100
