"""Less traffic between racks at the price of some moves (KIP-925, RackAwareTaskAssignor)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.assign.assignment import DriverAssignment, TaskAssignment
from headrace.assign.ids import DriverName, TaskId
from headrace.assign.min_cost_flow import cheapest
from headrace.assign.state import ApplicationState

TRAFFIC_COST = 10
NON_OVERLAP_COST = 1
"""Defaults of Streams' HighAvailabilityTaskAssignor; its StickyTaskAssignor has 1 and 10."""


def optimize_rack_aware_active(
    state: ApplicationState,
    assignment: TaskAssignment,
    tasks: Iterable[TaskId] | None = None,
    *,
    traffic_cost: int = TRAFFIC_COST,
    non_overlap_cost: int = NON_OVERLAP_COST,
) -> TaskAssignment:
    """Exchange active tasks between drivers, so that fewer read from another rack.

    Each partition of a task without a replica in its driver's rack costs ``traffic_cost``, a task
    off the driver that ran it ``non_overlap_cost``; the sum comes out minimal. Drivers keep their
    counts, and no task comes to a driver that has its standby. ``tasks`` are those that may move,
    all when it is None. Nothing is moved as long as a driver's rack is unknown.
    """
    _refuse_negative(traffic_cost=traffic_cost, non_overlap_cost=non_overlap_cost)
    movable = state.tasks.keys() if tasks is None else state.tasks.keys() & set(tasks)
    names = sorted(assignment.drivers)
    drivers = [assignment.drivers[name] for name in names]

    def price(task: TaskId, number: int, here: int) -> int | None:
        there = drivers[number]
        if number != here and task in there.standby:
            return None
        moved = task not in state.drivers[names[number]].active
        return traffic_cost * _foreign(state, task, names[number]) + non_overlap_cost * moved

    if not _racks_are_known(state, names):
        return assignment
    bins = [sorted(driver.active & movable) for driver in drivers]
    dealt = cheapest(bins, price)
    return _with(
        assignment,
        {
            name: replace(driver, active=(driver.active - movable) | frozenset(active))
            for name, driver, active in zip(names, drivers, dealt, strict=True)
        },
    )


def optimize_rack_aware_standby(
    state: ApplicationState,
    assignment: TaskAssignment,
    *,
    traffic_cost: int = TRAFFIC_COST,
    non_overlap_cost: int = NON_OVERLAP_COST,
) -> TaskAssignment:
    """The same for standbys, which come to no driver that has their task in any role.

    Copies that are in different racks stay so: reliability goes before traffic.
    """
    _refuse_negative(traffic_cost=traffic_cost, non_overlap_cost=non_overlap_cost)
    names = sorted(assignment.drivers)
    drivers = [assignment.drivers[name] for name in names]
    if not _racks_are_known(state, names):
        return assignment
    fixed: dict[TaskId, list[int]] = {}
    standbys: dict[TaskId, list[int]] = {}
    for number, driver in enumerate(drivers):
        for task in driver.active:
            fixed.setdefault(task, []).append(number)
        for task in driver.standby & state.tasks.keys():
            standbys.setdefault(task, []).append(number)

    def price(task: TaskId, number: int, here: int) -> int | None:
        others = [copy for copy in fixed.get(task, []) + standbys[task] if copy != here]
        taken = {state.drivers[names[copy]].rack for copy in others}
        apart = state.drivers[names[here]].rack not in taken
        if number in others or (apart and state.drivers[names[number]].rack in taken):
            return None
        moved = task not in state.drivers[names[number]].standby
        return traffic_cost * _foreign(state, task, names[number]) + non_overlap_cost * moved

    def carried(task: TaskId, source: int, target: int) -> Iterable[int]:
        standbys[task][standbys[task].index(source)] = target
        return standbys[task]

    movable = state.tasks.keys()
    bins = [sorted(driver.standby & movable) for driver in drivers]
    dealt = cheapest(bins, price, carried)
    return _with(
        assignment,
        {
            name: replace(driver, standby=(driver.standby - movable) | frozenset(standby))
            for name, driver, standby in zip(names, drivers, dealt, strict=True)
        },
    )


def _refuse_negative(**costs: int) -> None:
    for name, cost in costs.items():
        if cost < 0:
            raise ValueError(f"{name} must be 0 or more, got {cost}")


def _foreign(state: ApplicationState, task: TaskId, name: DriverName) -> int:
    """How many partitions of a task have no replica in a driver's rack."""
    rack = state.drivers[name].rack
    return sum(rack not in racks for racks in state.tasks[task].racks)


def _racks_are_known(state: ApplicationState, names: Iterable[DriverName]) -> bool:
    return all(name in state.drivers and state.drivers[name].rack is not None for name in names)


def _with(
    assignment: TaskAssignment, drivers: Mapping[DriverName, DriverAssignment]
) -> TaskAssignment:
    return replace(assignment, drivers={**assignment.drivers, **drivers})
