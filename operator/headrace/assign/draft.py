"""Draft of an assignment, with the limits of its balance."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Set
from functools import cached_property
from itertools import islice
from math import fsum
from operator import itemgetter

from headrace.assign.assignor import ApplicationState, DriverName, TaskId, TaskInfo

TasksByWeight = list[tuple[float, TaskInfo]]
"""Tasks of one driver with their weights, sorted by weight and id."""
Group = tuple[str, str]
"""Flow and type of a task: its kind. The tasks of each kind are spread over all drivers."""

ID = itemgetter(0)
WEIGHT = itemgetter(2)
"""Getters of TaskInfo fields. They are implemented in C, because they are called a million times.
"""


def group(task: TaskId) -> Group:
    """Return the flow and type of a task."""
    return task[:2]


class DraftAssignment:
    """Assignment that is being decided.

    It begins with the tasks that each driver runs and that still exist. The other tasks are
    orphans. Drivers are numbered in the order of their names. Loads are in bytes/s. Sums are exact
    (``fsum``), so they do not depend on the order of a set, which differs between processes.
    """

    def __init__(self, state: ApplicationState) -> None:
        self.state = state
        self.names: list[DriverName] = sorted(state.drivers)
        self.drivers = [state.drivers[name] for name in self.names]
        self.given: list[list[TaskInfo]] = []
        self.untouched: set[int] = set()
        """Drivers that keep all their tasks. In ``given``, these tasks come first."""
        self.moved: dict[TaskId, tuple[int, int]] = {}
        """Tasks that change their driver, with the old and the new driver."""
        self.orphans = self._keep()
        everything = len(self.orphans) == len(state.tasks)
        self.unassigned: Set[TaskId] = (
            state.tasks.keys() if everything else {info.id for info in self.orphans}
        )
        """Tasks that no driver runs. They may move freely while the draft is made."""
        self.counts = list(map(len, self.given))
        self.loads = [fsum(map(WEIGHT, given)) for given in self.given]
        self.weight = fsum(map(WEIGHT, self.orphans)) + fsum(self.loads)
        """Total weight of all tasks."""
        self.least, rest = divmod(len(state.tasks), len(self.drivers))
        """Minimum number of tasks that each driver should have."""
        self.most = self.least + bool(rest)
        self._tasks_by_weight: dict[int, TasksByWeight] = {}
        self._peaks: dict[int, float] = {}
        self._groups: dict[int, Counter[Group]] = {}

    def _keep(self) -> list[TaskInfo]:
        """Give each driver the tasks that it runs, and return the other tasks.

        If two drivers report a task, the first one keeps it.
        """
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
            else:  # Some tasks no longer exist, or a driver before this one has them.
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
        """Return the rack of each driver.

        Return None if a rack is unknown, or if all drivers are in one rack.
        """
        racks = [driver.rack for driver in self.drivers if driver.rack is not None]
        return racks if len(racks) == len(self.drivers) and len(set(racks)) > 1 else None

    def fair_loads(self) -> list[float]:
        """Return the load that each driver should have, which is usually the mean.

        If a single task weighs more than the mean, its driver should have no other task. The other
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
        if driver in self._tasks_by_weight:
            tasks = self._tasks_by_weight[driver]
            return tasks[-1][0] if tasks else 0.0
        if driver not in self._peaks:
            self._peaks[driver] = max(map(WEIGHT, self.given[driver]), default=0.0)
        return self._peaks[driver]

    def tasks_by_weight(self, driver: int) -> TasksByWeight:
        """Return the tasks of a driver, sorted by weight. The caller must not change the list."""
        if driver not in self._tasks_by_weight:
            self._tasks_by_weight[driver] = sorted((info[2], info) for info in self.given[driver])
        return self._tasks_by_weight[driver]

    def groups(self, driver: int) -> Counter[Group]:
        """Return a driver's number of tasks of each kind."""
        if driver not in self._groups:
            self._groups[driver] = Counter(group(info.id) for info in self.given[driver])
        return self._groups[driver]

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Move a task from one driver to another."""
        item = (info.weight, info)
        tasks = self.tasks_by_weight(source)
        del tasks[bisect_left(tasks, item)]
        insort(self.tasks_by_weight(target), item)
        self.groups(source)[group(info.id)] -= 1
        self.groups(target)[group(info.id)] += 1
        for driver, sign in (source, -1), (target, 1):
            self.counts[driver] += sign
            self.loads[driver] += sign * info.weight
        self._note(info.id, source, target)

    def result(self) -> list[frozenset[TaskId]]:
        """Return the tasks of each driver."""
        # Extending the existing set avoids hashing its members again.
        return [
            driver.active.union(map(ID, islice(self.given[number], len(driver.active), None)))
            if number in self.untouched
            else frozenset(map(ID, self._now(number)))
            for number, driver in enumerate(self.drivers)
        ]

    def _now(self, driver: int) -> list[TaskInfo]:
        tasks = self._tasks_by_weight.get(driver)
        return self.given[driver] if tasks is None else [info for _, info in tasks]


class Allowance:
    """Moves that are still allowed in this round.

    Each flow has a budget, but only if a balance round is due. Tasks that no driver runs, and tasks
    that move anyway, are free. Pinned tasks never move. A flow with a budget of one task may swap
    two tasks if no task of any flow has moved only for balance in this round. With equal counts,
    only a swap can balance the weights.
    """

    def __init__(self, draft: DraftAssignment, due: bool) -> None:
        self.spent = 0
        """Number of tasks that move only for balance."""
        self._draft = draft
        self._due = due

    @cached_property
    def _left(self) -> dict[str, int]:
        """Number of further tasks of each flow that may move."""
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
        """True if only free tasks may move."""
        return not any(left > 0 for left in self._left.values())

    @property
    def is_empty(self) -> bool:
        """True if no task may move."""
        return self.is_used_up and not self._draft.unassigned and not self._draft.moved

    def close(self) -> None:
        """Set the budgets to 0, so that only free tasks may move."""
        self._left = {}

    def movable(self, tasks: TasksByWeight) -> TasksByWeight:
        """Return those of ``tasks`` that may move, in the order of ``tasks``."""
        if len(self._draft.unassigned) == len(self._draft.state.tasks):
            return tasks
        return [item for item in tasks if self.covers(item[1])]

    def covers(self, task: TaskInfo) -> bool:
        """Return True if the allowance permits the move of a task."""
        if task.id in self._draft.state.pinned:
            return False
        return self._is_free(task) or self._left.get(task.id.flow, 0) > 0

    def covers_both(self, one: TaskInfo, other: TaskInfo) -> bool:
        """Return True if the allowance permits a swap of two tasks."""
        if one.id.flow != other.id.flow or self._is_free(one) or self._is_free(other):
            return self.covers(one) and self.covers(other)
        left = self._left.get(one.id.flow, 0)
        return left > 1 or (left == 1 and not self.spent)

    def spend(self, task: TaskInfo) -> bool:
        """Count the move of a task. Return True if it is not free."""
        if self._is_free(task):
            return False
        self._left[task.id.flow] -= 1
        self.spent += 1
        return True

    def refund(self, task: TaskInfo) -> None:
        """Undo the count of a move that was not free."""
        self._left[task.id.flow] += 1
        self.spent -= 1

    def _is_free(self, task: TaskInfo) -> bool:
        return task.id in self._draft.unassigned or task.id in self._draft.moved


_NEIGHBOURS = 32
"""Maximum number of tasks that ``movable_near`` yields above the weight, and below it."""


class Balance:
    """Moves tasks of a draft within its allowance."""

    def __init__(self, draft: DraftAssignment, allowance: Allowance) -> None:
        self.draft = draft
        self.allowance = allowance
        self.fair = draft.fair_loads()
        """Load that each driver should have."""
        self.drivers = range(len(self.fair))
        self._tolerance = draft.state.config.tolerance
        self._rounding = 1e-9 * draft.weight / len(draft.drivers)
        self._journal: list[tuple[TaskInfo, int, int, bool]] = []

    @property
    def is_reached(self) -> bool:
        """True if counts and weights are within their limits."""
        draft = self.draft
        is_even = all(draft.least <= count <= draft.most for count in draft.counts)
        return is_even and not any(map(self.is_off, self.drivers))

    def excess(self, driver: int) -> float:
        """Return a driver's load minus the load that it should have."""
        return self.draft.loads[driver] - self.fair[driver]

    def is_off(self, driver: int) -> bool:
        """Return True if a driver's load is outside the tolerance."""
        return abs(self.excess(driver)) > self.tolerated(driver) + self._rounding

    def tolerated(self, driver: int) -> float:
        """Return the tolerated deviation of a driver's load, in bytes/s."""
        return self._tolerance * self.fair[driver]

    def stays_even(self, donor: int, receiver: int, shift: float) -> bool:
        """Return True if both drivers remain balanced after a shift of weight.

        Each must be within the tolerance, or not further from its fair load than before.
        """
        for driver, change in (donor, -shift), (receiver, shift):
            before = self.excess(driver)
            after = before + change
            if abs(after) > max(self.tolerated(driver), abs(before)):
                return False
        return True

    def movable_near(self, driver: int, weight: float) -> Iterator[TaskInfo]:
        """Yield a driver's movable tasks from ``weight`` upwards, and then downwards."""
        tasks = self.draft.tasks_by_weight(driver)
        middle = bisect_left(tasks, weight, key=lambda item: item[0])
        for side in range(middle, len(tasks)), range(middle - 1, -1, -1):
            found = 0
            for place in side:
                info = tasks[place][1]
                if self.allowance.covers(info):
                    yield info
                    found += 1
                    if found == _NEIGHBOURS:
                        break

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Move a task, and reduce its flow's budget of moves unless the task is free."""
        self._journal.append((info, source, target, self.allowance.spend(info)))
        self._carry(info, source, target)

    @property
    def moves(self) -> int:
        """Number of moves so far. It is the argument of ``undo``."""
        return len(self._journal)

    def undo(self, since: int) -> None:
        """Undo all moves except the first ``since``."""
        for info, source, target, cost in reversed(self._journal[since:]):
            self._carry(info, target, source)
            if cost:
                self.allowance.refund(info)
        del self._journal[since:]

    def _carry(self, info: TaskInfo, source: int, target: int) -> None:
        self.draft.move(info, source, target)
        if info.weight >= min(self.fair):
            self.fair = self.draft.fair_loads()
