"""Deal in turn, and leave what need not move where it is."""

from collections import defaultdict

from headrace.assign.state import ApplicationState, DriverName, TaskAssignment, TaskId


class RoundRobinAssignor:
    """A first assignment deals tasks in order over drivers in order.

    A later one keeps every task with its driver as far as counts within one of each other allow,
    and deals only the rest. Counts are balanced first within each type of task, so that a driver
    does not end up with the connectors and another with all that copies.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """See ``TaskAssignor``."""
        drivers = sorted(state.drivers)
        if not drivers:
            return TaskAssignment({})
        by_type: dict[str, list[TaskId]] = defaultdict(list)
        for task in sorted(state.tasks):
            by_type[task.type].append(task)

        load: dict[DriverName, int] = dict.fromkeys(drivers, 0)
        decided: dict[TaskId, DriverName] = {}
        for tasks in by_type.values():
            dealt = _deal(tasks, drivers, state, load)
            for driver in dealt.values():
                load[driver] += 1
            decided |= dealt
        return TaskAssignment(decided)


def _deal(
    tasks: list[TaskId],
    drivers: list[DriverName],
    state: ApplicationState,
    load: dict[DriverName, int],
) -> dict[TaskId, DriverName]:
    """Tasks of one type; ``load`` is what other types gave each driver already."""
    least, extras = divmod(len(tasks), len(drivers))
    previous: dict[DriverName, list[TaskId]] = {driver: [] for driver in drivers}
    for task in tasks:
        if (owner := state.previous.get(task)) in previous:
            previous[owner].append(task)

    # Who holds most keeps one more; among equals, who carries least of the other types.
    order = sorted(drivers, key=lambda d: (-len(previous[d]), load[d], d))
    quota = {driver: least + (rank < extras) for rank, driver in enumerate(order)}

    kept = {task: d for d in drivers for task in previous[d][: quota[d]]}
    room = {driver: quota[driver] - len(previous[driver][: quota[driver]]) for driver in drivers}
    freed = [task for task in tasks if task not in kept]
    turns = [d for turn in range(len(freed)) for d in drivers if room[d] > turn]
    return kept | dict(zip(freed, turns, strict=True))
