"""An assignment while it is being decided."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Set
from itertools import islice
from math import fsum
from operator import itemgetter

from headrace.assign.ids import DriverName, TaskId
from headrace.assign.state import ApplicationState, TaskInfo

Shelf = list[tuple[float, TaskInfo]]
"""Tasks of one driver by weight, then by id."""
Group = tuple[str, str]
"""A flow and a type: tasks of one kind, which are spread apart from others."""

ID = itemgetter(0)
WEIGHT = itemgetter(2)
"""Of a TaskInfo; in C, as they are read a million times."""


def group(task: TaskId) -> Group:
    """The kind of a task."""
    return task[:2]


class DraftAssignment:
    """Drivers are numbers, in the order of their names; a load is in bytes/s.

    It begins with what every driver runs, as far as it is still a task; the rest are orphans.
    Sums are exact (``fsum``): they must not depend on the order of a set, which differs from one
    process to the next.
    """

    def __init__(self, state: ApplicationState) -> None:
        self.state = state
        self.names: list[DriverName] = sorted(state.drivers)
        self.drivers = [state.drivers[name] for name in self.names]
        self.given: list[list[TaskInfo]] = []
        self.untouched: set[int] = set()
        """Drivers that keep all that they run, in ``given`` before what they get."""
        self.moved: dict[TaskId, tuple[int, int]] = {}
        """Tasks planned for another driver than the one that runs them: from where, to where."""
        self.orphans = self._keep()
        everything = len(self.orphans) == len(state.tasks)
        self.unassigned: Set[TaskId] = (
            state.tasks.keys() if everything else {info.id for info in self.orphans}
        )
        """Tasks that no driver runs; they can move about freely until the plan is made."""
        self.counts = list(map(len, self.given))
        self.loads = [fsum(map(WEIGHT, given)) for given in self.given]
        self.weight = fsum(map(WEIGHT, self.orphans)) + fsum(self.loads)
        """Of all tasks."""
        self.least, rest = divmod(len(state.tasks), len(self.drivers))
        """The least tasks that a driver should have."""
        self.most = self.least + bool(rest)
        self._shelves: dict[int, Shelf] = {}
        self._peaks: dict[int, float] = {}
        self._groups: dict[int, Counter[Group]] = {}

    def _keep(self) -> list[TaskInfo]:
        """Give all drivers what they run, what two report to the first; returns the rest."""
        tasks = self.state.tasks
        if not any(driver.active for driver in self.drivers):
            self.given = [[] for _ in self.drivers]
            return list(tasks.values())
        # Sets know the hashes of what they hold; those of a million tuples take 0.3 s to compute.
        rest = set(tasks)
        for number, driver in enumerate(self.drivers):
            active, before = driver.active, len(rest)
            rest -= active
            if before - len(rest) == len(active):
                self.untouched.add(number)
            else:  # Some are no tasks any more, or an earlier driver's.
                earlier = set[TaskId]().union(*(d.active for d in self.drivers[:number]))
                active = (active & tasks.keys()) - earlier
            self.given.append(list(map(tasks.__getitem__, active)))
        return [tasks[task] for task in rest]

    def _note(self, task: TaskId, source: int, target: int) -> None:
        self.untouched -= {source, target}
        if task not in self.unassigned:
            home, _ = self.moved.get(task, (source, target))
            self.moved[task] = home, target
            if home == target:
                del self.moved[task]

    def racks(self) -> list[str] | None:
        """The rack of each driver; None when there is nothing to spread over."""
        racks = [driver.rack for driver in self.drivers if driver.rack is not None]
        return racks if len(racks) == len(self.drivers) and len(set(racks)) > 1 else None

    def fair_loads(self) -> list[float]:
        """The load that each driver should have: the mean of all.

        But a task that alone weighs more than the mean is all that its driver should have, and
        leaves less for the others: they should have the mean of the rest.
        """
        weight, drivers = self.weight, len(self.loads)
        tolerated = (1 + self.state.config.tolerance) * weight / drivers
        fair: dict[int, float] = {}
        if max(self.loads) > tolerated:
            heaviest = ((self._heaviest(d), -d) for d in range(len(self.loads)))
            for load, negative in sorted(heaviest, reverse=True):
                if load * drivers <= weight:
                    break
                fair[-negative] = load
                weight -= load
                drivers -= 1
        mean = weight / drivers if drivers else 0.0
        return [fair.get(driver, mean) for driver in range(len(self.loads))]

    def _heaviest(self, driver: int) -> float:
        if driver in self._shelves:
            shelf = self._shelves[driver]
            return shelf[-1][0] if shelf else 0.0
        if driver not in self._peaks:
            self._peaks[driver] = max(map(WEIGHT, self.given[driver]), default=0.0)
        return self._peaks[driver]

    def shelf(self, driver: int) -> Shelf:
        """The tasks of a driver by weight; not to be changed."""
        if driver not in self._shelves:
            self._shelves[driver] = sorted((info[2], info) for info in self.given[driver])
        return self._shelves[driver]

    def groups(self, driver: int) -> Counter[Group]:
        """How many tasks of each kind a driver has."""
        if driver not in self._groups:
            self._groups[driver] = Counter(group(info.id) for info in self.given[driver])
        return self._groups[driver]

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Take a task from one driver and give it to another."""
        item = (info.weight, info)
        shelf = self.shelf(source)
        del shelf[bisect_left(shelf, item)]
        insort(self.shelf(target), item)
        self.groups(source)[group(info.id)] -= 1
        self.groups(target)[group(info.id)] += 1
        for driver, sign in (source, -1), (target, 1):
            self.counts[driver] += sign
            self.loads[driver] += sign * info.weight
        self._note(info.id, source, target)

    def result(self) -> list[frozenset[TaskId]]:
        """The tasks of each driver."""
        # A set that grows need not hash again what it holds.
        return [
            driver.active.union(map(ID, islice(self.given[number], len(driver.active), None)))
            if number in self.untouched
            else frozenset(map(ID, self._now(number)))
            for number, driver in enumerate(self.drivers)
        ]

    def _now(self, driver: int) -> list[TaskInfo]:
        shelf = self._shelves.get(driver)
        return self.given[driver] if shelf is None else [info for _, info in shelf]
