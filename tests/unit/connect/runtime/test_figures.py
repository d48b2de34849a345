"""Figures of units."""

from headrace.connect.runtime.figures import Rate


def test_a_rate_is_the_mean_of_five_seconds_and_falls_to_zero() -> None:
    rate = Rate()
    for second in range(11):
        rate.count(second, 100 * second)
    assert rate.per_second == 100
    for second in range(11, 15):
        rate.count(second, 1_000)
        assert 0 < rate.per_second < 100
    rate.count(15, 1_000)
    assert rate.per_second == 0
