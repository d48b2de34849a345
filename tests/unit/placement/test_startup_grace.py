"""Units wait for all drivers for a short time, so that the first one does not get all of them."""

from headrace.placement.assigner import StartupGrace


def waits(grace: StartupGrace, ready: int, now_s: float, *, idle: bool = True) -> bool:
    """Return whether units wait if ``ready`` of two drivers run."""
    return grace.is_running(ready, 2, idle=idle, now_s=now_s)


def test_units_wait_for_the_second_driver_and_not_for_ever() -> None:
    grace = StartupGrace()
    assert not waits(grace, 0, 99)
    assert waits(grace, 1, 100)
    assert waits(grace, 1, 104)
    assert not waits(grace, 1, 106)
    assert not waits(grace, 1, 112), "once"


def test_nobody_waits_where_all_that_are_there_have_units() -> None:
    assert not waits(StartupGrace(), 1, 100, idle=False)


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
    assert waits(grace, 1, 104.9, idle=False)
    assert not waits(grace, 1, 105, idle=False)
    grace.begin(106)
    grace.begin(110)
    assert waits(grace, 1, 114, idle=False), "the whole time again"
