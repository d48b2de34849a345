"""Assign everything again, in turn: Kafka Connect's EagerAssignor."""

from itertools import cycle

from headrace.assign.assignment import DriverAssignment, TaskAssignment, TaskAssignor
from headrace.assign.ids import DriverName, TaskId
from headrace.assign.state import ApplicationState


class RoundRobinAssignor(TaskAssignor):
    """One turn over the drivers by name deals all connectors and goes on with all tasks, sorted.

    It has no memory: whenever a driver or a task comes or goes, most tasks change their driver.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """See ``TaskAssignor``."""
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))
        units = sorted(state.tasks, key=lambda task: (not task.is_connector, task))
        dealt: dict[DriverName, set[TaskId]] = {name: set() for name in sorted(state.drivers)}
        for task, name in zip(units, cycle(dealt), strict=False):
            dealt[name].add(task)
        return TaskAssignment(
            {name: DriverAssignment(active=frozenset(active)) for name, active in dealt.items()}
        )
