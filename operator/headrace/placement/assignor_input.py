"""Builds the input of an assignor from units' objects. No I/O."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from headrace.api import (
    ReplicationFlow,
    ReplicationTask,
    TaskType,
    TopicPartition,
    TopicPartitions,
)
from headrace.assign import (
    ApplicationState,
    DriverName,
    DriverState,
    FlowConfig,
    TaskId,
    TaskInfo,
    weigh,
)


def task_id(task: ReplicationTask) -> TaskId:
    """Return the identity of a unit in assignments."""
    return TaskId(task.spec.flow_name, task.spec.type, task.spec.index)


def drivers_with_their_units(
    drivers: Iterable[DriverState],
    tasks: Iterable[ReplicationTask],
    pins: Mapping[TaskId, DriverName],
) -> dict[DriverName, DriverState]:
    """Return the drivers with the units that they currently run and are standbys of.

    A pinned unit counts as running on the driver to which it is pinned.
    """
    there = {driver.name: driver for driver in drivers}
    active: dict[DriverName, set[TaskId]] = {name: set() for name in there}
    standby: dict[DriverName, set[TaskId]] = {name: set() for name in there}
    for task in tasks:
        id = task_id(task)
        pin = pins.get(id, "")
        owner = pin if pin in there else task.spec.driver_name
        if owner in there:
            active[owner].add(id)
        for name in task.spec.standby_driver_names:
            if name in there and name != owner:
                standby[name].add(id)
    return {
        name: replace(driver, active=frozenset(active[name]), standby=frozenset(standby[name]))
        for name, driver in there.items()
    }


def racks(tasks: Iterable[ReplicationTask]) -> dict[TaskId, tuple[frozenset[str], ...]]:
    """Return the racks of each partition of each source task, if its connector reports racks."""
    tasks = list(tasks)
    known: dict[str, dict[TopicPartition, set[str]]] = {}
    for task in tasks:
        for one in task.status.racks:
            of_flow = known.setdefault(task.spec.flow_name, {})
            for at in one.unpack():
                of_flow.setdefault(at, set()).add(one.rack)
    return {
        task_id(task): tuple(
            frozenset(known[task.spec.flow_name].get(at, ()))
            for at in sorted(TopicPartitions.unpack(task.spec.partitions))
        )
        for task in tasks
        if task.spec.flow_name in known and task.spec.type is TaskType.SOURCE_TASK
    }


def weights(
    ids: Iterable[TaskId],
    measured: Callable[[TaskId], float | None],
    racks: Mapping[TaskId, tuple[frozenset[str], ...]],
) -> dict[TaskId, TaskInfo]:
    """Return the weight and the racks of each unit.

    While no rate is known, all stateful units have the same weight. With weights of 0, an assignor
    could assign all of them to one driver.
    """
    rates = {id: measured(id) for id in ids}
    if not any(rates.values()):
        rates = {id: 1.0 if id.is_stateful else 0.0 for id in rates}
    weighed = weigh(rates)
    return weighed | {id: weighed[id]._replace(racks=of_one) for id, of_one in racks.items()}


def flow_configs(
    flows: Iterable[ReplicationFlow], drivers: Collection[DriverState]
) -> dict[str, FlowConfig]:
    """Return the settings of each flow.

    The movement budget limits moves between working drivers. It is at least the share of drivers
    without units, which have just joined and get their units at once.
    """
    idle = sum(not driver.active for driver in drivers)
    share = idle / len(drivers) if drivers else 0.0
    return {
        flow.metadata.name: FlowConfig(
            standbys=flow.spec.tasks.standbys,
            movement_budget=max(flow.spec.tasks.movement_budget, share),
        )
        for flow in flows
    }


def is_to_be_filled(state: ApplicationState) -> bool:
    """Return True if a driver has no units, and others have some."""
    idle = [not driver.active for driver in state.drivers.values()]
    return any(idle) and not all(idle)
