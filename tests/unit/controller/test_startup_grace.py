"""Units wait a moment for all of a flow's drivers, so that the first does not get all of them."""

from support.manifests import flow

from headrace.api import (
    ObjectMeta,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    TaskType,
)
from headrace.controller.drivers import DriverLease, DriverPod, drivers_of
from headrace.controller.startup_grace import Gathering

FLOW = ReplicationFlow.model_validate(flow("orders", drivers={"replicas": 2}))


def waits(gathering: Gathering, names: str, now_s: float, driver: str = "") -> bool:
    """Whether one unit, which is with ``driver``, waits while the drivers ``names`` are there."""
    heard = DriverLease("1", renewed=True)
    there = drivers_of([DriverPod(name, "t") for name in names], "t", dict.fromkeys(names, heard))
    spec = ReplicationTaskSpec(
        flow_name="orders", type=TaskType.SOURCE_TASK, index=0, driver_name=driver
    )
    unit = ReplicationTask(metadata=ObjectMeta(name="orders-source-task-0"), spec=spec)
    return gathering.is_under_way(FLOW, [unit], there, now_s)


def test_units_wait_for_the_second_driver_and_not_for_ever() -> None:
    gathering = Gathering()
    assert not waits(gathering, "", 99)
    assert waits(gathering, "a", 100)
    assert waits(gathering, "a", 104)
    assert not waits(gathering, "a", 106)


def test_units_that_are_placed_do_not_wait() -> None:
    assert not waits(Gathering(), "a", 100, driver="a")


def test_a_flow_that_is_started_again_waits_again() -> None:
    gathering = Gathering()
    assert waits(gathering, "a", 100)
    assert not waits(gathering, "ab", 101)
    assert waits(gathering, "a", 900), "after spec.state was Stopped"
