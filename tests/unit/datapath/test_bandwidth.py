"""Waits of lanes that share a limit."""

import pytest
from support.fake_kafka import FakeClock

from headrace.datapath import TokenBucket


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_without_a_limit_nobody_waits(clock: FakeClock) -> None:
    bandwidth = TokenBucket(clock)
    bandwidth.spend(1 << 40)
    assert bandwidth.wait_s() == 0
    assert bandwidth.request_bytes > 1 << 40


def test_what_was_read_is_paid_off_at_the_limit(clock: FakeClock) -> None:
    bandwidth = TokenBucket(clock)
    bandwidth.limit(1_000)
    bandwidth.spend(4_000)
    assert bandwidth.wait_s() == pytest.approx(4.0)
    clock.advance(3)
    assert bandwidth.wait_s() == pytest.approx(1.0)
    clock.advance(1.1)
    assert bandwidth.wait_s() == 0


def test_half_a_second_that_was_not_used_is_made_up_for_and_no_more(clock: FakeClock) -> None:
    bandwidth = TokenBucket(clock)
    bandwidth.limit(1_000)
    clock.advance(60)
    bandwidth.spend(500)
    assert bandwidth.wait_s() == 0
    bandwidth.spend(1_000)
    assert bandwidth.wait_s() == pytest.approx(1.0)


def test_another_limit_counts_from_now_on(clock: FakeClock) -> None:
    bandwidth = TokenBucket(clock)
    bandwidth.limit(1_000)
    bandwidth.spend(4_000)
    bandwidth.limit(4_000)
    assert bandwidth.wait_s() == pytest.approx(1.0)
    bandwidth.limit(None)
    assert bandwidth.wait_s() == 0
    clock.advance(10)
    bandwidth.limit(1_000)
    assert bandwidth.wait_s() == 0, "what was owed is long since paid"


def test_it_is_used_up_when_lanes_waited_for_half_of_a_window(clock: FakeClock) -> None:
    bandwidth = TokenBucket(clock)
    bandwidth.limit(1_000)
    bandwidth.spend(4_000)
    clock.advance(10)
    assert not bandwidth.used_up
    assert bandwidth.waited_s == pytest.approx(4.0)
    bandwidth.spend(60_000)
    clock.advance(9)
    assert not bandwidth.used_up, "a window has 10 s"
    clock.advance(1)
    assert bandwidth.used_up
    clock.advance(60)
    assert bandwidth.used_up
    assert bandwidth.waited_s == pytest.approx(63.5)
    assert bandwidth.waited_within(11)
    assert not bandwidth.waited_within(10)
    clock.advance(10)
    assert not bandwidth.used_up


def test_without_a_limit_it_is_not_used_up(clock: FakeClock) -> None:
    bandwidth = TokenBucket(clock)
    bandwidth.limit(1_000)
    bandwidth.spend(60_000)
    clock.advance(10)
    assert bandwidth.used_up
    bandwidth.limit(None)
    assert not bandwidth.used_up
