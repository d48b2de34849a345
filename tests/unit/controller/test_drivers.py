"""Drivers that join, leave, restart and roll: which receive units, keep them, or are lost."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.controller.drivers import (
    DriverLease,
    DriverPod,
    FlowDrivers,
    drivers_of,
    is_ambiguous,
    stuck_rollout,
)

NEWEST, OLD = "new", "old"


def pod(name: str, template: str = NEWEST) -> DriverPod:
    return DriverPod(name, template)


def seen(life: str = "life", *, renewed: bool = True, expired: bool = False) -> DriverLease:
    return DriverLease(life, renewed and life != "", expired)


def view(pods: list[DriverPod], **leases: DriverLease) -> FlowDrivers:
    return drivers_of(pods, NEWEST, leases)


def taking(drivers: FlowDrivers) -> set[str]:
    return {driver.name for driver in drivers.schedulable}


def test_a_driver_joins_when_it_was_heard() -> None:
    drivers = view([pod("a"), pod("b"), pod("c")], a=seen(), b=seen(renewed=False), c=seen(""))
    assert taking(drivers) == {"a"}
    assert drivers.cordoned == {"b", "c"}
    assert drivers.alive == 2


def test_units_wait_for_drivers_that_were_not_heard_yet() -> None:
    assert view([pod("a")], a=seen(renewed=False)).none_schedulable
    assert not view([pod("a"), pod("b")], a=seen(renewed=False), b=seen()).none_schedulable
    assert not view([pod("a")], a=seen("")).none_schedulable, "there is none yet"


def test_drivers_are_silent_when_there_are_pods_and_no_lease_that_is_held() -> None:
    assert not view([]).silent
    assert view([pod("a"), pod("b")], a=seen(""), b=seen(expired=True)).silent
    assert not view([pod("a"), pod("b")], a=seen(""), b=seen(renewed=False)).silent


@pytest.mark.parametrize("change", [{"terminating": True}, {"ended": True}])
def test_one_that_goes_keeps_nothing(change: dict[str, Any]) -> None:
    drivers = view([pod("a"), replace(pod("b"), **change)], a=seen(), b=seen())
    assert taking(drivers) == {"a"}
    assert drivers.cordoned == set()


def test_terminating_is_not_lost_it_hands_over_itself() -> None:
    drivers = view([replace(pod("b"), terminating=True)], b=seen())
    assert not drivers.is_lost("b", "life")


@pytest.mark.parametrize(
    ("pods", "lease", "lost"),
    [
        ([], seen(), True),  # its pod was deleted
        ([replace(pod("b"), ended=True)], seen(), True),
        ([pod("b")], seen(), False),
        ([pod("b")], seen("another life"), True),  # its container was restarted
        ([pod("b")], seen(expired=True), True),  # its Lease expired
        ([pod("b")], seen(""), False),  # no Lease: being observed
        ([pod("b")], replace(seen(""), expired=True), True),  # ... for its whole duration
    ],
)
def test_which_life_is_over(pods: list[DriverPod], lease: DriverLease, lost: bool) -> None:
    assert view(pods, b=lease).is_lost("b", "life") is lost


def test_a_lease_that_expired_takes_the_driver_out_and_a_renewal_brings_it_back() -> None:
    pods = [pod("a"), pod("b")]
    gone = view(pods, a=seen(), b=seen(expired=True))
    assert (taking(gone), gone.cordoned) == ({"a"}, frozenset())
    assert taking(view(pods, a=seen(), b=seen())) == {"a", "b"}


def test_in_a_roll_out_units_go_to_the_newest_template_only() -> None:
    pods = [pod("a", OLD), pod("b", OLD), pod("c")]
    drivers = view(pods, a=seen(), b=seen(), c=seen())
    assert drivers.rolling
    assert taking(drivers) == {"c"}
    assert drivers.cordoned == {"a", "b"}


def test_in_a_restart_by_kubectl_units_go_to_the_newest_replica_set_only() -> None:
    pods = [DriverPod("a", NEWEST, "1"), DriverPod("b", NEWEST, "1"), DriverPod("c", NEWEST, "2")]
    assert is_ambiguous(pods, NEWEST)
    assert not is_ambiguous([pods[0], pods[1], DriverPod("d", OLD, "3")], NEWEST)
    leases = {name: seen() for name in "abc"}
    drivers = drivers_of(pods, NEWEST, leases, "2")
    assert drivers.rolling
    assert taking(drivers) == {"c"}
    assert drivers.cordoned == {"a", "b"}


def test_until_one_of_the_newest_template_is_there_the_old_ones_take() -> None:
    drivers = view([pod("a", OLD), pod("c")], a=seen(), c=seen(""))
    assert drivers.rolling
    assert taking(drivers) == {"a"}


def test_a_roll_out_is_over_with_the_last_old_pod() -> None:
    leaving = replace(pod("a", OLD), terminating=True)
    assert view([leaving, pod("c")], a=seen(), c=seen()).rolling
    assert not view([pod("c")], c=seen()).rolling


NOW = datetime(2026, 11, 21, tzinfo=UTC)


def starting(name: str, age_s: float, why: str = "it is not ready") -> DriverPod:
    return replace(pod(name), not_ready=why, created=NOW - timedelta(seconds=age_s))


@pytest.mark.parametrize(
    ("pods", "refused", "overdue", "why"),
    [
        ([pod("a", OLD), starting("b", 119)], "", "", ""),
        ([pod("a", OLD), starting("b", 121)], "", "", "pod b: it is not ready"),
        ([pod("a", OLD), pod("b"), starting("c", 121, "no image")], "", "", "pod c: no image"),
        ([starting("a", 121)], "", "", ""),
        ([pod("a", OLD), starting("b", 1)], "", "too late", "pod b: it is not ready"),
        ([pod("a", OLD)], "", "too late", "too late"),
        ([pod("a", OLD)], "quota", "", "the API server takes no more pods: quota"),
        ([pod("a")], "quota", "", ""),
    ],
)
def test_stuck_roll_out_has_a_reason(
    pods: list[DriverPod], refused: str, overdue: str, why: str
) -> None:
    assert stuck_rollout(view(pods), NOW, refused=refused, overdue=overdue) == why
