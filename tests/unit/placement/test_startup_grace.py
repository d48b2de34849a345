"""Units wait a moment for all drivers, so that the first does not get all of them."""

from headrace.placement.startup_grace import StartupGrace


def waits(grace: StartupGrace, ready: int, now_s: float, *, assigned: bool = False) -> bool:
    """Whether units wait while ``ready`` of two drivers are there."""
    return grace.is_running(ready, 2, assigned=assigned, now_s=now_s)


def test_units_wait_for_the_second_driver_and_not_for_ever() -> None:
    grace = StartupGrace()
    assert not waits(grace, 0, 99)
    assert waits(grace, 1, 100)
    assert waits(grace, 1, 104)
    assert not waits(grace, 1, 106)
    assert not waits(grace, 1, 112), "once"


def test_units_that_are_assigned_do_not_wait() -> None:
    assert not waits(StartupGrace(), 1, 100, assigned=True)


def test_all_drivers_end_the_wait_and_the_next_has_its_whole_time() -> None:
    grace = StartupGrace()
    assert waits(grace, 1, 100)
    assert not waits(grace, 2, 101)
    assert waits(grace, 1, 900), "after spec.state was Stopped"


def test_a_flow_whose_drivers_all_left_waits_again() -> None:
    grace = StartupGrace()
    assert waits(grace, 1, 100)
    assert not waits(grace, 0, 200)
    assert waits(grace, 1, 900)


def test_drivers_that_are_being_started_are_awaited_also_by_units_that_have_one() -> None:
    grace = StartupGrace()
    grace.begin(100)
    assert waits(grace, 0, 101)
    assert waits(grace, 1, 104.9, assigned=True)
    assert not waits(grace, 1, 105, assigned=True)
    grace.begin(106)
    grace.begin(110)
    assert waits(grace, 1, 114, assigned=True), "the whole time again"
