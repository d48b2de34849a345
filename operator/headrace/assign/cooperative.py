"""Kafka Connect's incremental cooperative assignment, for people who know it."""

from collections.abc import Collection

from headrace.assign.assignment import DriverAssignment, TaskAssignment, TaskAssignor
from headrace.assign.errors import AssignmentError
from headrace.assign.ids import TaskId
from headrace.assign.incremental_cooperative import IncrementalCooperative, Load
from headrace.assign.state import ApplicationState


class CooperativeAssignor(TaskAssignor):
    """Balances counts, connectors apart from tasks; what moves is without a driver for a round.

    It remembers: a driver that goes is waited for, all its units idle, until ``max_delay_ms`` are
    over (``scheduled.rebalance.max.delay.ms``). In Connect that is 300,000: a worker that is lost
    may be one that restarts. Here who asks knows which drivers are lost: nobody is waited for.
    Weights and racks do not count.
    """

    def __init__(self, max_delay_ms: int = 0) -> None:
        self._leader = IncrementalCooperative(max_delay_ms)

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """See ``TaskAssignor``; asks for the next round at once when it revoked something."""
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))
        outcome = self._leader.round(
            _load(state.tasks.keys()),
            # What is deleted is left out: a driver stops by itself what it is not given.
            {
                name: _load(driver.active & state.tasks.keys())
                for name, driver in state.drivers.items()
            },
            state.now_ms,
        )
        drivers = {
            name: DriverAssignment(active=frozenset(load.connectors | load.tasks))
            for name, load in outcome.next.items()
        }
        owned = frozenset[TaskId]().union(*(driver.active for driver in drivers.values()))
        follow_up_ms = None
        if any(outcome.revoked.values()):
            follow_up_ms = state.now_ms
        elif outcome.delay_ms:
            follow_up_ms = state.now_ms + outcome.delay_ms
        return TaskAssignment(drivers, frozenset(state.tasks.keys() - owned), follow_up_ms)

    def on_assignment_computed(
        self, assignment: TaskAssignment, state: ApplicationState, error: AssignmentError
    ) -> None:
        """A refused round is one that never completed."""
        if error is not AssignmentError.NONE:
            self._leader.forget_previous()


def _load(units: Collection[TaskId]) -> Load:
    ordered = sorted(units)
    return Load(
        {unit: None for unit in ordered if unit.is_connector},
        {unit: None for unit in ordered if not unit.is_connector},
    )
