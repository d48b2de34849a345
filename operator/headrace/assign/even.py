"""By count alone, type by type: what ``headrace run`` places its units with so far."""

from collections import defaultdict
from collections.abc import Mapping

from headrace.assign.assignment import DriverAssignment, TaskAssignment, TaskAssignor
from headrace.assign.ids import DriverName, TaskId
from headrace.assign.state import ApplicationState


class EvenAssignor(TaskAssignor):
    """A first assignment deals tasks in order over drivers in order.

    A later one keeps every task with its driver as far as counts within one of each other allow,
    and deals only the rest. Counts are balanced first within each type of task, so that a driver
    does not end up with the connectors and another with all that copies.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """See ``TaskAssignor``."""
        drivers = sorted(state.drivers)
        if not drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))
        owners = {task: name for name in drivers for task in state.drivers[name].active}
        by_type: dict[str, list[TaskId]] = defaultdict(list)
        for task in sorted(state.tasks):
            by_type[task.type].append(task)
        decided: dict[DriverName, set[TaskId]] = {driver: set() for driver in drivers}
        for tasks in by_type.values():
            load = {driver: len(given) for driver, given in decided.items()}
            for task, driver in _deal(tasks, drivers, owners, load).items():
                decided[driver].add(task)
        return TaskAssignment(
            {name: DriverAssignment(active=frozenset(given)) for name, given in decided.items()}
        )


def _deal(
    tasks: list[TaskId],
    drivers: list[DriverName],
    owners: Mapping[TaskId, DriverName],
    load: Mapping[DriverName, int],
) -> dict[TaskId, DriverName]:
    """Tasks of one type; ``load`` is what other types gave each driver already."""
    least, extras = divmod(len(tasks), len(drivers))
    previous: dict[DriverName, list[TaskId]] = {driver: [] for driver in drivers}
    for task in tasks:
        if (owner := owners.get(task)) is not None:
            previous[owner].append(task)

    # Who holds most keeps one more; among equals, who carries least of the other types.
    order = sorted(drivers, key=lambda d: (-len(previous[d]), load[d], d))
    quota = {driver: least + (rank < extras) for rank, driver in enumerate(order)}

    kept = {task: d for d in drivers for task in previous[d][: quota[d]]}
    room = {driver: quota[driver] - len(previous[driver][: quota[driver]]) for driver in drivers}
    freed = [task for task in tasks if task not in kept]
    turns = [d for turn in range(len(freed)) for d in drivers if room[d] > turn]
    return kept | dict(zip(freed, turns, strict=True))
