"""What an assignor answers, and the shape of an assignor (KIP-924, TaskAssignor)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.assign.errors import AssignmentError
from headrace.assign.ids import DriverName, TaskId
from headrace.assign.state import ApplicationState

_NONE: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class DriverAssignment:
    """What one driver is to run (KIP-924, KafkaStreamsAssignment)."""

    active: frozenset[TaskId] = _NONE
    standby: frozenset[TaskId] = _NONE


@dataclass(frozen=True)
class TaskAssignment:
    """What every driver is to run, and when to ask again."""

    drivers: Mapping[DriverName, DriverAssignment]
    """Each driver of the state is a key, also one that gets nothing."""
    waiting: frozenset[TaskId] = _NONE
    """Tasks that are left without a driver on purpose: there is none, or a delay is running."""
    follow_up_ms: int | None = None
    """When to ask again though nothing happened, on the clock of ``now_ms``; None: no need."""
    balanced: bool = False
    """Whether something moves for balance; ``now_ms`` is then the next ``last_balance_ms``."""

    @property
    def owners(self) -> dict[TaskId, DriverName]:
        """The driver that runs each task."""
        return {task: name for name, driver in self.drivers.items() for task in driver.active}


class TaskAssignor(Protocol):
    """Decides the assignment. Without I/O, clock or randomness: one state, one answer.

    Raise ``TaskAssignmentError`` to keep the assignment in force and be asked again at once.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Decide for all tasks of ``state``."""
        ...

    def on_assignment_computed(
        self, assignment: TaskAssignment, state: ApplicationState, error: AssignmentError
    ) -> None:
        """What became of an answer: ``NONE`` when it is in force, else why it was refused."""
        del assignment, state, error  # Who remembers nothing has no use for them.
