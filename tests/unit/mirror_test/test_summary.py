"""Measurements in a report are bounded and add up."""

import pytest

from headrace.mirror_test import MAX_POINTS, ProbeMeasurements, Second, latency, own_latency, points


def measured(*seconds: tuple[int, int]) -> ProbeMeasurements:
    """Return seconds with these numbers of arrivals, each with a latency of 5 ms."""
    return ProbeMeasurements(
        seconds=tuple(
            Second(second=at, visible=count, p50_ms=5, p99_ms=8, max_ms=9) for at, count in seconds
        )
    )


def test_nothing_measured_is_no_latency() -> None:
    assert latency(()) is None


def test_quantiles_are_exact_and_the_histogram_has_two_digits() -> None:
    found = latency(((3, 500), (1_234, 490), (1_270, 9), (5_001, 1)))
    assert found is not None
    assert (found.measured, found.p50, found.p99, found.p999, found.max) == (
        1_000,
        3,
        1_234,
        1_270,
        5_001,
    )
    assert found.histogram == ((3, 500), (1_200, 499), (5_000, 1))


def test_the_histogram_is_bounded() -> None:
    found = latency(tuple((ms, 1) for ms in range(0, 3_600_001, 7)))
    assert found is not None
    assert len(found.histogram) <= MAX_POINTS
    assert sum(count for _, count in found.histogram) == found.measured


def test_every_second_of_a_short_test_is_a_point() -> None:
    found = points(10_200, [(10, 100), (11, 50)], measured((11, 90), (13, 60)))
    assert [p.at_seconds for p in found] == [0, 0.8, 1.8, 2.8]
    assert [p.acknowledged_per_second for p in found] == [100, 50, 0, 0]
    assert [p.visible_per_second for p in found] == [0, 90, 0, 60]
    assert [p.behind for p in found] == [100, 60, 60, 0]
    assert [p.p99_ms for p in found] == [None, 8, None, 8]


def test_of_the_mirrors_own_share_there_are_quantiles() -> None:
    found = own_latency(ProbeMeasurements(own_histogram=((3, 500), (1_234, 490), (5_001, 10))))
    assert found is not None
    assert (found.measured, found.p50, found.p99, found.max) == (1_000, 3, 1_234, 5_001)
    assert found.histogram == ()
    assert own_latency(None) is None
    assert own_latency(ProbeMeasurements(histogram=((3, 500),))) is None


def test_the_mirrors_own_share_is_drawn_over_time() -> None:
    own = Second(second=11, visible=90, p50_ms=3, p99_ms=4, max_ms=9)
    both = measured((11, 90)).model_copy(update={"own_seconds": (own,)})
    last = points(10_200, [(10, 100)], both)[-1]
    assert (last.p50_ms, last.own_p50_ms, last.own_p99_ms) == (5, 3, 4)
    assert points(0, [(0, 10)], measured((0, 12)))[0].own_p50_ms is None


def test_repetitions_do_not_make_the_target_run_ahead() -> None:
    assert [p.behind for p in points(0, [(0, 10)], measured((0, 12), (1, 3)))] == [0, 0]


@pytest.mark.parametrize("hours", [1, 24])
def test_a_long_test_has_no_more_points_than_a_plot_can_show(hours: int) -> None:
    acknowledged = [(second, 10) for second in range(hours * 3_600)]
    found = points(0, acknowledged, measured(*acknowledged))
    assert len(found) <= MAX_POINTS
    assert {p.acknowledged_per_second for p in found[:-1]} == {10}


def test_a_test_of_many_days_has_no_more_points_than_a_plot_can_show() -> None:
    last_s = 25 * 24 * 3_600  # one second beyond the largest width of a point
    assert len(points(0, [(0, 10), (last_s, 10)], None)) <= MAX_POINTS


def test_without_a_probe_there_are_still_points() -> None:
    assert [p.acknowledged_per_second for p in points(0, [(0, 7)], None)] == [7]
    assert points(0, [], None) == ()
