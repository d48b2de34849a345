"""Start times of a failed unit."""

from headrace.assign import TaskId
from headrace.connect.runtime.retries import Reclaims, Restarts, restart_delay_s

UNIT = TaskId("orders", "SourceTask", 0)
HOUR_S = 3600.0


def test_restarts_back_off_in_minutes() -> None:
    assert [restart_delay_s(n) / 60 for n in (0, 1, 2, 3, 7, 8, 99)] == [0, 2, 6, 12, 56, 60, 60]


def fails_at_once(restarts: Restarts, times: int) -> float:
    """Let a unit fail a second after each of its starts, and return the time of its last start."""
    started = 0.0
    for number in range(times):
        failed = started + 1
        delay_s = restart_delay_s(number)
        if delay_s:
            assert not restarts.is_due(UNIT, started, failed)
            assert not restarts.is_due(UNIT, started, started + delay_s - 1)
        assert restarts.is_due(UNIT, started, max(failed, started + delay_s))
        assert restarts.count(UNIT) == number + 1
        started = max(failed, started + delay_s)
    return started


def test_a_unit_that_keeps_failing_is_counted_on() -> None:
    fails_at_once(Restarts(), 12)


def test_a_unit_that_ran_for_longer_than_it_would_wait_counts_from_the_start() -> None:
    restarts = Restarts()
    started = fails_at_once(restarts, 9)
    assert restarts.is_due(UNIT, started, started + HOUR_S + 1)
    assert (restarts.count(UNIT), restarts.total(UNIT)) == (1, 10)


def test_one_that_was_restarted_by_hand_counts_from_the_start() -> None:
    restarts = Restarts()
    fails_at_once(restarts, 3)
    restarts.forget(UNIT)
    assert restarts.count(UNIT) == 0
    assert restarts.total(UNIT) == 3, "a counter of a living process does not fall"
    assert restarts.is_due(UNIT, 5000.0, 5001.0)


def test_claims_of_a_unit_that_is_lost_again_and_again_back_off() -> None:
    """A connector whose tasks were edited restarted 19 times a second."""
    reclaims, now, started, starts = Reclaims(), 0.0, 0.0, 0
    while now < 60:
        now += 0.05  # the API server also rejects the next instance
        if reclaims.is_due(UNIT, started, now):
            started, starts = now, starts + 1
    assert 2 <= starts < 20


def test_unit_that_was_held_for_a_minute_is_claimed_at_once() -> None:
    reclaims = Reclaims()
    assert reclaims.is_due(UNIT, 0.0, 1.0)
    assert not reclaims.is_due(UNIT, 1.0, 1.1)
    assert reclaims.is_due(UNIT, 10.0, 10.0 + 61)


def test_unit_that_was_assigned_elsewhere_meanwhile_is_claimed_at_once() -> None:
    reclaims = Reclaims()
    assert reclaims.is_due(UNIT, 0.0, 1.0)
    reclaims.keep(frozenset())
    assert reclaims.is_due(UNIT, 1.0, 1.1)
