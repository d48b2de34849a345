"""How often the operator reverts changes by other managers."""

from support.fake_kafka import FakeClock

from headrace.controller.contested_objects import Contests


def test_changes_are_reverted_ever_later_and_reported_from_the_third_on() -> None:
    clock = FakeClock()
    contests = Contests[str](clock.monotonic)
    waits = []
    for _ in range(12):
        contests.changed("a", ["other"])
        waits.append(contests.wait_s("a"))
        clock.advance(waits[-1])
        assert contests.wait_s("a") == 0
        assert contests.managers("a") == (["other"] if len(waits) > 2 else None)
    assert waits[:5] == [0, 1, 2, 4, 8]
    assert waits[-1] == 300
    assert contests.managers("b") is None


def test_report_ends_after_ten_calm_minutes() -> None:
    clock = FakeClock()
    contests = Contests[str](clock.monotonic)
    for _ in range(3):
        contests.changed("a", ["other"])
    clock.advance(contests.calm_s("a"))
    assert contests.managers("a") is None
    contests.changed("a", ["other"])
    assert contests.wait_s("a") == 0
