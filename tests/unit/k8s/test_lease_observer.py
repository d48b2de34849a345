"""Drivers that are lost according to their Leases, with one test for each rule.

Times are seconds of the observer's clock.
"""

import pytest

from headrace.k8s import LeaseObserver, LeaseView

A, B, C = ("shop", "a"), ("shop", "b"), ("shop", "c")


def lease(renewed: float, life: str = "1", duration_s: float = 6) -> LeaseView:
    return LeaseView(f"pod/{life}", str(renewed), duration_s)


def watch(observer: LeaseObserver, until: float, *alive: tuple[str, str], since: float = 0) -> bool:
    """Let ``alive`` renew each second, and return whether the observer was ever judged blind."""
    blind = False
    now = since
    while now < until:
        now += 1
        for name in alive:
            observer.observe(name, lease(now), now)
        if observer.due(now):
            blind |= observer.judge(now)
    return blind


def test_an_unchanged_lease_expires_after_its_duration() -> None:
    observer = LeaseObserver()
    for name in (A, B, C):
        observer.observe(name, lease(0), 0)
    watch(observer, 5, B, C)
    assert not observer.expired
    assert not watch(observer, 6, B, C, since=5)
    assert observer.expired == {A}
    assert observer.holder(A) == "pod/1"
    observer.observe(A, lease(99, life="2"), 10)
    assert not observer.expired
    assert observer.holder(A) == "pod/2"


def test_a_lease_that_was_old_when_first_seen_gets_a_full_observation() -> None:
    observer = LeaseObserver()
    observer.observe(A, lease(-1000), 100)
    assert not observer.due(105.9)
    assert observer.due(106)


@pytest.mark.parametrize("jump_s", [-86400, 86400])
def test_a_clock_that_jumps_makes_nobody_lost_and_keeps_nobody_alive(jump_s: float) -> None:
    observer = LeaseObserver()
    for name in (A, B, C):
        observer.observe(name, lease(0), 0)
    observer.observe(A, lease(1 + jump_s), 1)  # its last renewal
    blind = False
    for now in range(2, 7):
        for name in (B, C):
            observer.observe(name, lease(now + jump_s), now)
        if observer.due(now):
            blind |= observer.judge(now)
    assert not observer.expired
    for name in (B, C):
        observer.observe(name, lease(7), 7)  # and have returned
    assert observer.due(7)
    assert not blind | observer.judge(7)
    assert observer.expired == {A}


def test_a_missing_lease_is_observed_for_as_long() -> None:
    observer = LeaseObserver()
    observer.observe(B, lease(0), 0)
    observer.expect({A: 6, B: 6}, 0)
    watch(observer, 6, B)
    assert observer.expired == {A}
    observer.expect({B: 6}, 7)  # its pod was deleted
    assert not observer.expired
    observer.observe(B, None, 8)
    assert not observer.due(13.9)
    observer.judge(14)
    assert observer.expired == {B}


def test_a_lease_that_is_deleted_keeps_the_duration_that_it_declared() -> None:
    """Its holder renews three times in that duration: with 60 s, the next may be 20 s later."""
    observer = LeaseObserver()
    observer.expect({A: 6, B: 60}, 0)
    for name in (A, B):
        observer.observe(name, lease(0, duration_s=60), 0)
    observer.observe(A, None, 10)
    observer.expect({A: 6}, 11)  # a new duration, which the driver may not have read
    assert not observer.due(59.9), "B"
    observer.observe(B, lease(60, duration_s=60), 60)
    assert not observer.due(69.9)
    observer.judge(70)
    assert observer.expired == {A}


def test_a_lease_that_never_was_gets_the_duration_of_its_flow() -> None:
    observer = LeaseObserver()
    observer.expect({A: 60}, 0)
    assert not observer.due(59.9)
    observer.expect({A: 20}, 10)
    assert not observer.due(19.9)
    observer.judge(20)
    assert observer.expired == {A}


def test_a_lease_that_declares_no_duration_gets_that_of_its_flow() -> None:
    observer = LeaseObserver()
    observer.expect({A: 20}, 0)
    observer.observe(A, lease(0, duration_s=0), 0)
    assert not observer.due(19.9)
    observer.judge(20)
    assert observer.expired == {A}


def test_a_watch_that_works_again_starts_from_the_beginning() -> None:
    observer = LeaseObserver()
    observer.observe(A, lease(0), 0)
    observer.observe(B, lease(0), 0)
    observer.restart(5.9)
    assert not observer.due(11.8)
    observer.judge(11.9)


def test_most_together_are_watched_once_more() -> None:
    observer = LeaseObserver()
    # Renewed at different moments, unseen from 2 s on: they would run out one by one.
    for name, at in ((A, 0.2), (B, 1.0), (C, 1.9)):
        observer.observe(name, lease(at), at)
    assert observer.judge(6.3), "A is due, all are silent"
    assert not observer.expired
    assert not watch(observer, 12, A, B, C, since=7)
    assert not observer.expired, "they were alive all the time"


def test_most_together_are_lost_when_they_stay_silent() -> None:
    observer = LeaseObserver()
    for name in (A, B, C):
        observer.observe(name, lease(0), 0)
    assert watch(observer, 6, C)
    assert not observer.expired
    watch(observer, 12, C, since=6)
    assert observer.expired == {A, B}


def test_a_single_driver_is_not_most() -> None:
    observer = LeaseObserver()
    observer.observe(A, lease(0), 0)
    assert not observer.judge(6)
    assert observer.expired == {A}


def returned(observer: LeaseObserver, now: float, *names: tuple[str, str]) -> bool:
    """Let these renew now, and return whether there was anything to judge."""
    for name in names:
        observer.observe(name, lease(now), now)
    if due := observer.due(now):
        observer.judge(now)
    return due


def four(at: float = 0) -> tuple[LeaseObserver, tuple[str, str]]:
    observer, slow = LeaseObserver(), ("shop", "slow")
    for name in (A, B, C, slow):
        observer.observe(name, lease(at), at)
    return observer, slow


def test_nobody_is_lost_while_others_still_return_after_an_outage() -> None:
    """An API server that was unreachable receives the renewals of a fleet one after the other."""
    observer, slow = four()
    observer.restart(10)
    assert not returned(observer, 12, A)
    assert not returned(observer, 17, A, B)
    assert not returned(observer, 22, A, B, C), "12 s after the restart, twice its duration"
    assert not observer.judge(22)
    assert not observer.expired
    assert not returned(observer, 24, A, B, C, slow)
    assert not observer.expired


def test_the_longer_others_take_to_return_the_longer_is_waited_for_the_next() -> None:
    """An API server that loads 10,000 units accepts a fleet's renewals within half a minute."""
    observer, slow = four()
    observer.restart(10)
    for now, back in ((15, (A,)), (20, (A, B)), (25, (A, B, C))):
        assert not returned(observer, now, *back)
    for now in range(26, 40, 2):
        assert not returned(observer, now, A, B, C), "the last one returned after 15 s"
    returned(observer, 40, A, B, C)
    assert observer.expired == {slow}


def test_whoever_does_not_return_is_lost_a_duration_after_the_last_that_did() -> None:
    observer, dead = four()
    observer.restart(10)
    for now in (12, 14, 16, 17):
        assert not returned(observer, now, A, B, *((C,) if now == 12 else ()))
        observer.observe(C, lease(now, life="2"), now)
    returned(observer, 18, A, B, C)
    assert observer.expired == {dead}


def test_one_who_dies_while_others_return_is_found_when_all_have_returned() -> None:
    observer, slow = four()
    observer.restart(10)
    assert not returned(observer, 11, A, B, C)
    assert not returned(observer, 16, B, C)
    returned(observer, 17, B, C, slow)
    assert observer.expired == {A}, "it returned once, at 11 s"


def test_others_that_return_forever_hide_nobody() -> None:
    observer = LeaseObserver()
    names = [("shop", f"driver-{number}") for number in range(30)]
    for name in names:
        observer.observe(name, lease(0), 0)
    observer.restart(10)
    for number in range(1, len(names)):
        now = 10 + 3 * number
        returned(observer, now, *names[1 : number + 1])
        assert (names[0] in observer.expired) == (now >= 70), f"after {now - 10} s"
