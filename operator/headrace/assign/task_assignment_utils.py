"""Checks and helpers for custom assignors (KIP-924, TaskAssignmentUtils)."""

from dataclasses import dataclass
from itertools import chain

from headrace.assign.assignor import (
    ApplicationState,
    AssignmentError,
    DriverAssignment,
    DriverName,
    TaskAssignment,
    TaskId,
)
from headrace.assign.rack_aware import optimize_rack_aware_active, optimize_rack_aware_standby
from headrace.assign.standbys import place_standbys


@dataclass(frozen=True)
class Violation:
    """Rule that an assignment breaks."""

    error: AssignmentError
    message: str


def validate(state: ApplicationState, assignment: TaskAssignment) -> AssignmentError:
    """Return the first rule that an assignment breaks, or ``NONE`` if it is valid."""
    violation = find_violation(state, assignment)
    return violation.error if violation else AssignmentError.NONE


def find_violation(state: ApplicationState, assignment: TaskAssignment) -> Violation | None:
    """Return the first rule that an assignment breaks, with its task or driver, or None."""
    given, known = assignment.drivers.keys(), state.drivers.keys()
    if unknown := given - known:
        return Violation(AssignmentError.UNKNOWN_PROCESS_ID, f"there is no driver {min(unknown)}")
    if missing := known - given:
        return Violation(
            AssignmentError.MISSING_PROCESS_ID,
            f"driver {min(missing)} is left out",
        )
    for name in sorted(given):
        if violation := _within(state, name, assignment.drivers[name]):
            return violation
    return _across(state, assignment)


def _within(state: ApplicationState, name: DriverName, given: DriverAssignment) -> Violation | None:
    """Return a violation within one driver's assignment, or None."""
    copies = given.standby
    if unknown := [t for t in chain(given.active, copies) if t not in state.tasks]:
        return Violation(
            AssignmentError.UNKNOWN_TASK_ID,
            f"driver {name} is given {min(unknown).name}, which is no task",
        )
    if stateless := [task for task in copies if not state.tasks[task].stateful]:
        return Violation(
            AssignmentError.INVALID_STANDBY_TASK,
            f"driver {name} is given a standby of {min(stateless).name}, which keeps no state",
        )
    if both := given.active & copies:
        return Violation(
            AssignmentError.ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS,
            f"driver {name} is given {min(both).name} to run and as a standby",
        )
    return None


def _across(state: ApplicationState, assignment: TaskAssignment) -> Violation | None:
    """Return a violation between the assignments of several drivers, or None."""
    claims = sum(len(driver.active) for driver in assignment.drivers.values())
    owned = frozenset[TaskId]().union(*(driver.active for driver in assignment.drivers.values()))
    if claims > len(owned):
        return _doubled(assignment)
    if unknown := assignment.waiting - state.tasks.keys():
        return Violation(
            AssignmentError.UNKNOWN_TASK_ID, f"{min(unknown).name} waits, which is no task"
        )
    if forgotten := state.tasks.keys() - owned - assignment.waiting:
        return Violation(
            AssignmentError.TASK_NOT_ASSIGNED,
            f"{len(forgotten)} tasks have no driver, {min(forgotten).name} among them",
        )
    return None


def _doubled(assignment: TaskAssignment) -> Violation:
    first: dict[TaskId, DriverName] = {}
    for name in sorted(assignment.drivers):
        active = assignment.drivers[name].active
        if twice := first.keys() & active:
            task = min(twice)
            return Violation(
                AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                f"{task.name} is given to driver {first[task]} and to driver {name}",
            )
        first |= dict.fromkeys(active, name)
    raise AssertionError("called when no task has two drivers")


def identity(state: ApplicationState) -> TaskAssignment:
    """Return the current assignment without tasks and drivers that do not exist any more.

    If two drivers report a task, the first one by name keeps it. A standby on its task's driver is
    dropped. Tasks without a driver wait.
    """
    claimed: set[TaskId] = set()
    kept = {}
    tasks = state.tasks.keys()
    for name, driver in sorted(state.drivers.items()):
        active = (driver.active & tasks) - claimed
        claimed |= active
        standby = frozenset(
            task for task in (driver.standby & tasks) - active if state.tasks[task].stateful
        )
        kept[name] = DriverAssignment(active, standby)
    return TaskAssignment(kept, frozenset(tasks - claimed))


class AssignmentUtils:
    """Helpers for assignors, under a name similar to Kafka Streams' ``TaskAssignmentUtils``."""

    validate = staticmethod(validate)
    find_violation = staticmethod(find_violation)
    identity = staticmethod(identity)
    place_standbys = staticmethod(place_standbys)
    optimize_rack_aware_active = staticmethod(optimize_rack_aware_active)
    optimize_rack_aware_standby = staticmethod(optimize_rack_aware_standby)
