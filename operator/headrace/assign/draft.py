"""Assignment while it is decided, with the bounds of its balance."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Set
from functools import cached_property
from itertools import islice
from math import fsum
from operator import itemgetter

from headrace.assign.assignor import ApplicationState, DriverName, TaskId, TaskInfo

Shelf = list[tuple[float, TaskInfo]]
"""Tasks of one driver by weight, then by id."""
Group = tuple[str, str]
"""A flow and a type: tasks of one kind, which are spread apart from others."""

ID = itemgetter(0)
WEIGHT = itemgetter(2)
"""Getters of TaskInfo fields, in C because they are read a million times."""


def group(task: TaskId) -> Group:
    """Return the kind of a task."""
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
        """Weight of all tasks."""
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
        # Sets store the hashes of their members. Computing the hashes of a million tuples takes 0.3
        # s.
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
        """Return the rack of each driver, or None if there is nothing to spread over."""
        racks = [driver.rack for driver in self.drivers if driver.rack is not None]
        return racks if len(racks) == len(self.drivers) and len(set(racks)) > 1 else None

    def fair_loads(self) -> list[float]:
        """Return the load that each driver should have: the mean of all.

        If a task alone weighs more than the mean, its driver should have nothing else. The other
        drivers should then have the mean of the rest.
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
        """Return the tasks of a driver by weight; the caller must not change it."""
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
        """Return the tasks of each driver."""
        # A set that grows need not hash its members again.
        return [
            driver.active.union(map(ID, islice(self.given[number], len(driver.active), None)))
            if number in self.untouched
            else frozenset(map(ID, self._now(number)))
            for number, driver in enumerate(self.drivers)
        ]

    def _now(self, driver: int) -> list[TaskInfo]:
        shelf = self._shelves.get(driver)
        return self.given[driver] if shelf is None else [info for _, info in shelf]


class Allowance:
    """A share of each flow's tasks, and that only when a balance round is due.

    Tasks that nobody runs yet and tasks that are on the move anyway are free; pinned ones stay. A
    round that has moved nothing may swap two tasks, however small the share: where the counts are
    even, nothing but a swap can even the weights.
    """

    def __init__(self, draft: DraftAssignment, due: bool) -> None:
        self.spent = 0
        """Tasks that move for nothing but balance."""
        self._draft = draft
        self._due = due

    @cached_property
    def _left(self) -> dict[str, int]:
        """How many more tasks of each flow may move."""
        if not self._due:
            return {}
        state = self._draft.state
        return {
            flow: max(1, int(budget * tasks)) if budget else 0
            for flow, tasks in Counter(task[0] for task in state.tasks).items()
            for budget in [state.flow(flow).movement_budget]
        }

    @property
    def is_used_up(self) -> bool:
        """Whether no task may move that is not free."""
        return not any(left > 0 for left in self._left.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing may move."""
        return self.is_used_up and not self._draft.unassigned and not self._draft.moved

    def close(self) -> None:
        """From now on, only what is free may move."""
        self._left = {}

    def movable(self, shelf: Shelf) -> Shelf:
        """Return the tasks that may move, in the same order."""
        if len(self._draft.unassigned) == len(self._draft.state.tasks):
            return shelf
        return [item for item in shelf if self.covers(item[1])]

    def covers(self, task: TaskInfo) -> bool:
        """Whether a task may move."""
        if task.id in self._draft.state.pinned:
            return False
        return self._is_free(task) or self._left.get(task.id.flow, 0) > 0

    def covers_both(self, one: TaskInfo, other: TaskInfo) -> bool:
        """Whether two tasks may move together."""
        if one.id.flow != other.id.flow or self._is_free(one) or self._is_free(other):
            return self.covers(one) and self.covers(other)
        left = self._left.get(one.id.flow, 0)
        return left > 1 or (left == 1 and not self.spent)

    def spend(self, task: TaskInfo) -> bool:
        """Count a move of a task; return whether it costs anything."""
        if self._is_free(task):
            return False
        self._left[task.id.flow] -= 1
        self.spent += 1
        return True

    def refund(self, task: TaskInfo) -> None:
        """Take back a move that cost something."""
        self._left[task.id.flow] += 1
        self.spent -= 1

    def _is_free(self, task: TaskInfo) -> bool:
        return task.id in self._draft.unassigned or task.id in self._draft.moved


_NEIGHBOURS = 32
"""Tasks considered on either side of the weight that would be best."""


class Balance:
    """Moves tasks of a draft, as far as they are allowed to."""

    def __init__(self, draft: DraftAssignment, allowance: Allowance) -> None:
        self.draft = draft
        self.allowance = allowance
        self.fair = draft.fair_loads()
        """The load that each driver should have."""
        self.drivers = range(len(self.fair))
        self._tolerance = draft.state.config.tolerance
        self._rounding = 1e-9 * draft.weight / len(draft.drivers)
        self._journal: list[tuple[TaskInfo, int, int, bool]] = []

    @property
    def is_reached(self) -> bool:
        """Whether counts and weights are within their bounds."""
        draft = self.draft
        is_even = all(draft.least <= count <= draft.most for count in draft.counts)
        return is_even and not any(map(self.is_off, self.drivers))

    def excess(self, driver: int) -> float:
        """By how much a driver's load is above what it should be; negative when below."""
        return self.draft.loads[driver] - self.fair[driver]

    def is_off(self, driver: int) -> bool:
        """Whether a driver's load is further off than is tolerated."""
        return abs(self.excess(driver)) > self.tolerated(driver) + self._rounding

    def tolerated(self, driver: int) -> float:
        """How far off a driver's load may be."""
        return self._tolerance * self.fair[driver]

    def stays_even(self, donor: int, receiver: int, shift: float) -> bool:
        """Return whether a shift of weight from donor to receiver keeps both even.

        Both must stay within the tolerance, or at least move no further from the mean.
        """
        for driver, change in (donor, -shift), (receiver, shift):
            before = self.excess(driver)
            after = before + change
            if abs(after) > max(self.tolerated(driver), abs(before)):
                return False
        return True

    def movable_near(self, driver: int, weight: float) -> Iterator[TaskInfo]:
        """Yield some movable tasks of a driver with weights near ``weight``, on either side."""
        shelf = self.draft.shelf(driver)
        middle = bisect_left(shelf, weight, key=lambda item: item[0])
        for side in range(middle, len(shelf)), range(middle - 1, -1, -1):
            found = 0
            for place in side:
                info = shelf[place][1]
                if self.allowance.covers(info):
                    yield info
                    found += 1
                    if found == _NEIGHBOURS:
                        break

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Move a task, at the cost of the allowance."""
        self._journal.append((info, source, target, self.allowance.spend(info)))
        self._carry(info, source, target)

    @property
    def moves(self) -> int:
        """How many there were; the argument of ``undo``."""
        return len(self._journal)

    def undo(self, since: int) -> None:
        """Take back all moves but the first ``since``."""
        for info, source, target, cost in reversed(self._journal[since:]):
            self._carry(info, target, source)
            if cost:
                self.allowance.refund(info)
        del self._journal[since:]

    def _carry(self, info: TaskInfo, source: int, target: int) -> None:
        self.draft.move(info, source, target)
        if info.weight >= min(self.fair):
            self.fair = self.draft.fair_loads()
