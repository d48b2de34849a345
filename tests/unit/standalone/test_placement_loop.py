"""Drivers that the placement of a run knows as lost."""

from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

from headrace.api import ReplicationTaskStatus, TaskType
from headrace.standalone.fleet import DriverProcess
from headrace.standalone.placement_loop import PlacementLoop
from headrace.standalone.task_store import TaskStore


def driver(incarnation: str) -> DriverProcess:
    return cast(DriverProcess, SimpleNamespace(incarnation=incarnation))


def claim(store: TaskStore, incarnation: str, epoch: int) -> None:
    (unit,) = store
    status = ReplicationTaskStatus(
        driver_name=f"driver-{epoch}", driver_incarnation=incarnation, epoch=epoch
    )
    store.write_status(unit, status)


def test_a_lost_driver_is_known_until_another_one_has_claimed_its_units() -> None:
    store = TaskStore()
    store.put("orders", TaskType.HEARTBEAT_CONNECTOR)
    placement = PlacementLoop(list, store, Mock(), lambda: None)
    claim(store, "a", epoch=1)
    for incarnation in ("a", "without units", "b"):
        placement.driver_left(driver(incarnation))
    assert [placement.is_lost(one) for one in ("a", "without units", "b")] == [True, False, True]
    claim(store, "c", epoch=2)
    assert placement.is_lost("a"), "its unit may have been claimed just now"
    placement.driver_left(driver("d"))
    assert [placement.is_lost(one) for one in ("a", "b", "d")] == [False, False, True]
