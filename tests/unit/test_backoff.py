"""Delays between attempts."""

from headrace.timing import Backoff


def test_delays_double_up_to_the_limit_and_begin_again_after_a_success() -> None:
    backoff = Backoff(1.0, 6.0, jitter=False)
    assert [backoff.next_s() for _ in range(5)] == [1.0, 2.0, 4.0, 6.0, 6.0]
    backoff.reset()
    assert backoff.next_s() == 1.0


def test_jitter_takes_up_to_half_of_a_delay() -> None:
    delays = [Backoff(8.0, 8.0).next_s() for _ in range(100)]
    assert 4.0 <= min(delays) < max(delays) <= 8.0


def test_any_number_of_failures_keeps_the_limit() -> None:
    """2 to the power of 1,024 is not a float."""
    backoff = Backoff(0.2, 60.0, jitter=False)
    assert [backoff.next_s() for _ in range(2000)][-1] == 60.0
