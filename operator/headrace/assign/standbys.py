"""Placement of standbys, in other racks and on drivers with few tasks (KIP-441, KIP-708)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from math import ceil

from headrace.assign.assignor import ApplicationState, DriverName, TaskId


def place_standbys(
    state: ApplicationState,
    active: Mapping[DriverName, frozenset[TaskId]],
) -> dict[DriverName, frozenset[TaskId]]:
    """Return the standbys of each driver, as many for each stateful task as its flow requires.

    A standby is never on its task's driver. Drivers in other racks than the task and its other
    standbys are preferred, then drivers that had a standby of the task before, then drivers with
    the fewest tasks. If there are too few drivers, there are fewer standbys.
    """
    names = sorted(state.drivers)
    per_flow = {flow: of.standbys for flow, of in state.flows.items()}
    if not any(per_flow.values()):
        return dict.fromkeys(names, frozenset())
    wanted = {
        task: per_flow[task.flow]
        for tasks in active.values()
        for task in tasks
        if per_flow.get(task.flow) and state.tasks[task].stateful
    }
    placement = _Placement(state, names, wanted)
    for number, name in enumerate(names):
        placement.occupy(number, active.get(name, frozenset()))
    placement.keep()
    placement.fill()
    return {name: frozenset(tasks) for name, tasks in zip(names, placement.standbys, strict=True)}


class _Placement:
    """Placement of standbys. Drivers are numbered in the order of their names."""

    def __init__(
        self, state: ApplicationState, names: list[DriverName], standby_counts: Mapping[TaskId, int]
    ) -> None:
        self.drivers = [state.drivers[name] for name in names]
        self.missing = dict(sorted(standby_counts.items()))
        self.standbys: list[set[TaskId]] = [set() for _ in names]
        self._copies: dict[TaskId, list[int]] = {task: [] for task in self.missing}
        """Drivers that have a task in any role."""
        self._duties = [0] * len(names)
        """Number of tasks of each driver, including standbys."""
        self._most = ceil(sum(standby_counts.values()) / len(names))
        """Maximum number of previous standbys that a driver keeps: the mean number of standbys of a
        driver, rounded up."""
        self._racks = [driver.rack for driver in self.drivers]
        self._population = Counter(self._racks)

    def occupy(self, driver: int, tasks: Iterable[TaskId]) -> None:
        """Record that a driver runs tasks."""
        for task in tasks:
            self._duties[driver] += 1
            if task in self._copies:
                self._copies[task].append(driver)

    def keep(self) -> None:
        """Keep previous standbys, then place standbys on drivers that ran the task before."""
        holders: dict[TaskId, list[int]] = {}
        for role in ("standby", "active"):
            for number, driver in enumerate(self.drivers):
                held: frozenset[TaskId] = getattr(driver, role)
                for task in held & self.missing.keys():
                    holders.setdefault(task, []).append(number)
        for task in self.missing:
            for holder in holders.get(task, ()):
                if (
                    self.missing[task]
                    and holder not in self._copies[task]
                    and len(self.standbys[holder]) < self._most
                    and self._collisions(task, self._racks[holder]) == self._fewest(task)
                ):
                    self._give(task, holder)

    def fill(self) -> None:
        """Place the missing standbys on the drivers with the fewest tasks."""
        self._idlest: dict[str | None, list[tuple[int, int]]] = {}
        for number, rack in enumerate(self._racks):
            self._idlest.setdefault(rack, []).append((self._duties[number], number))
        for heap in self._idlest.values():
            heapify(heap)
        for task, missing in self.missing.items():
            free = len(self.drivers) - len(self._copies[task])
            for _ in range(min(missing, free)):
                driver = self._choose(task)
                self._give(task, driver)
                heappush(self._idlest[self._racks[driver]], (self._duties[driver], driver))

    def _give(self, task: TaskId, driver: int) -> None:
        self.standbys[driver].add(task)
        self.missing[task] -= 1
        self._copies[task].append(driver)
        self._duties[driver] += 1

    def _collisions(self, task: TaskId, rack: str | None) -> int:
        """Return the number of collisions of a task in a rack.

        These are the rack's drivers that have the task in any role. The number is 0 if the rack is
        unknown.
        """
        return sum(rack is not None and rack == self._racks[copy] for copy in self._copies[task])

    def _fewest(self, task: TaskId) -> int:
        """Return the lowest number of collisions that one more standby of a task can have."""
        taken = Counter(self._racks[copy] for copy in self._copies[task])
        return min(
            self._collisions(task, where)
            for where, drivers in self._population.items()
            if drivers > taken[where]
        )

    def _choose(self, task: TaskId) -> int:
        """Return the driver for one more standby of a task.

        Drivers with the fewest collisions are preferred, then drivers with the fewest tasks.
        """
        best: tuple[int, int, int] | None = None
        for rack, heap in self._idlest.items():
            aside = []
            while heap and (
                heap[0][0] != self._duties[heap[0][1]] or heap[0][1] in self._copies[task]
            ):
                duties, driver = heappop(heap)
                if duties == self._duties[driver]:
                    aside.append((duties, driver))
            if heap:
                candidate = (self._collisions(task, rack), *heap[0])
                best = min(best or candidate, candidate)
            for entry in aside:
                heappush(heap, entry)
        assert best is not None, "there are more drivers than copies"
        return best[2]
