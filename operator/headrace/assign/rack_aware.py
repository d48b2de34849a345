"""Rack-aware assignment as a minimum-cost flow (KIP-925, RackAwareTaskAssignor)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from headrace.assign.assignor import (
    ApplicationState,
    DriverAssignment,
    DriverName,
    TaskAssignment,
    TaskId,
)

# Cheapest distribution of items over bins that keep their counts.
#
# This is a minimum-cost flow in which every item is one unit. The graph has only bins: an arc from
# one bin to another represents the item that is cheapest to move. As in Kafka Streams' ``Graph``,
# the algorithm starts with the current distribution and cancels cycles of negative cost. Without
# such cycles the flow is minimal. Items do not move if that saves nothing.

Item = TypeVar("Item")

Cost = Callable[[Item, int, int], int | None]
"""Function that returns the cost of an item in one bin.

Its arguments are the item, that bin, and the item's current bin. It returns None if the item must
not be in that bin.
"""

_Arc = tuple[int, int]
"""Additional cost of moving the arc's cheapest item, and that item's index in its bin."""


Carried = Callable[[Item, int, int], Iterable[int]]
"""Function that is called after an item has moved from one bin to another.

It returns the bins whose costs have changed.
"""


def solve_min_cost_flow(
    bins: Sequence[Sequence[Item]],
    cost: Cost[Item],
    carried: Carried[Item] = lambda item, source, target: (),
) -> list[list[Item]]:
    """Return the items of each bin with the lowest total cost. Bins keep their counts.

    A cycle takes O(bins³), and there are at most as many cycles as units of cost to save. Each item
    must be allowed in its current bin.
    """
    dealt = [list(items) for items in bins]
    arcs = [_arcs(items, here, len(dealt), cost) for here, items in enumerate(dealt)]
    while circle := _negative_cycle(arcs):
        items = {source: dealt[source].pop(arcs[source][target][1]) for source, target in circle}
        changed = set(items)
        for source, target in circle:
            dealt[target].append(items[source])
            changed.update(carried(items[source], source, target))
        for here in changed:
            arcs[here] = _arcs(dealt[here], here, len(dealt), cost)
    return dealt


def _arcs(items: Sequence[Item], here: int, bins: int, cost: Cost[Item]) -> dict[int, _Arc]:
    """Return the item that is cheapest to move to each other bin.

    Bins to which no item may move are left out.
    """
    cheapest: dict[int, _Arc] = {}
    for place, item in enumerate(items):
        now = cost(item, here, here)
        assert now is not None, "an item is in a bin where it is not allowed"
        for there in range(bins):
            then = cost(item, there, here) if there != here else None
            if then is not None and (there not in cheapest or then - now < cheapest[there][0]):
                cheapest[there] = then - now, place
    return cheapest


def _negative_cycle(arcs: Sequence[Mapping[int, _Arc]]) -> list[tuple[int, int]]:
    """Return the arcs of a cycle with negative cost (Bellman-Ford), or an empty list."""
    distance = [0] * len(arcs)
    before = [-1] * len(arcs)
    last = -1
    for _ in arcs:
        last = -1
        for source, to in enumerate(arcs):
            for target, (cost, _) in to.items():
                if distance[source] + cost < distance[target]:
                    distance[target] = distance[source] + cost
                    before[target] = source
                    last = target
        if last < 0:
            return []
    for _ in arcs:  # Follow the changes back until the bin is certainly on the cycle.
        last = before[last]
    circle = [(before[last], last)]
    while circle[-1][0] != last:
        circle.append((before[circle[-1][0]], circle[-1][0]))
    return circle


TRAFFIC_COST = 10
NON_OVERLAP_COST = 1
"""Costs as in Kafka Streams' HighAvailabilityTaskAssignor.

Kafka Streams' StickyTaskAssignor has 1 and 10.
"""


def optimize_rack_aware_active(
    state: ApplicationState,
    assignment: TaskAssignment,
    tasks: Iterable[TaskId] | None = None,
    *,
    traffic_cost: int = TRAFFIC_COST,
    non_overlap_cost: int = NON_OVERLAP_COST,
) -> TaskAssignment:
    """Exchange active tasks between drivers to reduce reads from other racks.

    A partition without a replica in its driver's rack costs ``traffic_cost``. A task on another
    driver than before costs ``non_overlap_cost``. The total cost is minimal. Drivers keep their
    counts, and no task moves to a driver that has its standby. Only ``tasks`` may move, or all if
    it is None. Nothing moves if a driver's rack is unknown.
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
    dealt = solve_min_cost_flow(bins, price)
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
    """Exchange standbys between drivers to reduce reads from other racks.

    A standby never moves to a driver that has its task in any role. Copies in different racks stay
    in different racks, because reliability takes precedence over traffic.
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
    dealt = solve_min_cost_flow(bins, price, carried)
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
    """Return the number of a task's partitions without a replica in a driver's rack."""
    rack = state.drivers[name].rack
    return sum(rack not in racks for racks in state.tasks[task].racks)


def _racks_are_known(state: ApplicationState, names: Iterable[DriverName]) -> bool:
    return all(name in state.drivers and state.drivers[name].rack is not None for name in names)


def _with(
    assignment: TaskAssignment, drivers: Mapping[DriverName, DriverAssignment]
) -> TaskAssignment:
    return replace(assignment, drivers={**assignment.drivers, **drivers})
