"""Assignments of a flow's units as objects, and moves that users request. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.api import (
    API_VERSION,
    MOVE_ANNOTATION,
    ReplicationFlow,
    ReplicationTask,
    desired_drivers,
    standby_label,
)
from headrace.assign import DriverName, DriverState, TaskId
from headrace.controller.drivers import FlowDrivers
from headrace.controller.resources.deployment import PINNED_TO
from headrace.k8s import Object
from headrace.placement import (
    Assigner,
    Assignment,
    DriverPool,
    assign_unit,
    pins_in_force,
    task_id,
)


@dataclass(frozen=True)
class Move:
    """A user's request to move a unit to a driver (annotation ``headrace.dev/move-to``)."""

    task: ReplicationTask
    driver: DriverName
    refusal: str = ""
    """Reason for refusing the move, or empty if it is accepted.

    The annotation is removed in both cases.
    """


@dataclass(frozen=True)
class ObjectAssignment(Assignment):
    """An assignment, with the metadata that the operator writes to the unit's object."""

    pin: DriverName = ""

    @property
    def standby_labels(self) -> dict[str, str]:
        """Labels with which standby drivers find the unit."""
        return {standby_label(driver): "" for driver in self.standbys}

    @property
    def differs(self) -> bool:
        """True if the unit's object must be changed."""
        metadata = self.task.metadata
        return (
            super().differs
            or self.pin != metadata.annotations.get(PINNED_TO, "")
            or not self.standby_labels.items() <= metadata.labels.items()
        )


def requested_moves(tasks: Iterable[ReplicationTask], drivers: FlowDrivers) -> list[Move]:
    """Return the moves that can be decided now. A move to a driver that is still starting waits."""
    schedulable = {driver.name for driver in drivers.schedulable}
    moves = []
    for task in tasks:
        wanted = task.metadata.annotations.get(MOVE_ANNOTATION)
        if wanted is None:
            continue
        pod = drivers.pods.get(wanted)
        if wanted in schedulable:
            moves.append(Move(task, wanted))
        elif pod is None or pod.terminating or pod.ended or drivers.rolling:
            there = ", ".join(sorted(schedulable)) or "none at the moment"
            state = "is about to go" if pod else "does not exist"
            moves.append(
                Move(task, wanted, f"driver {wanted!r} {state}; units can move to: {there}")
            )
    return moves


@dataclass(frozen=True)
class AssignmentChanges:
    """Changes to write to the units of a flow."""

    assignments: tuple[ObjectAssignment, ...]
    """Assignments that differ from the units' objects."""
    moves: tuple[Move, ...]
    """Users' requests that were accepted or refused."""
    problem: str
    """Problem if the flow's assignor gave no valid answer, otherwise empty."""
    follow_up_ms: int | None
    """Time of the next decision without an event, in ms, on the clock of ``now_s``.

    None if there is none.
    """


def assignment_changes(
    flow: ReplicationFlow,
    tasks: Sequence[ReplicationTask],
    drivers: FlowDrivers,
    assigner: Assigner,
    now_s: float,
    *,
    barred: frozenset[TaskId] = frozenset(),
) -> AssignmentChanges:
    """Decide the assignments of all units of ``flow``.

    A plug-in may be called, so the function may block for seconds. Units in ``barred`` are not
    assigned to any driver.
    """
    pool = driver_pool(drivers, desired_drivers(flow, tasks))
    moves = requested_moves(tasks, drivers)
    units = {task_id(task): task for task in tasks}
    requested = {id: task.metadata.annotations.get(PINNED_TO, "") for id, task in units.items()}
    accepted = {task_id(move.task): move.driver for move in moves if not move.refusal}
    pins = pins_in_force(requested | accepted, pool)
    decision = assigner.decide([flow], tasks, pool, now_s, pins=pins, barred=barred)
    wanted = (
        _with_pin(assign_unit(task, decision.placements.get(id), pool), pins.get(id, ""))
        for id, task in units.items()
    )
    return AssignmentChanges(
        assignments=tuple(assignment for assignment in wanted if assignment.differs),
        moves=tuple(moves),
        # If no driver may get units yet, the flow's status gives the state of the drivers instead.
        problem=decision.problems.get(flow.metadata.name, "") if drivers.schedulable else "",
        follow_up_ms=decision.follow_up_ms,
    )


def driver_pool(drivers: FlowDrivers, expected: int) -> DriverPool:
    """Return a flow's driver pods in the form that placement needs."""
    return DriverPool(
        expected=expected,
        schedulable=tuple(DriverState(pod.name, rack=pod.rack) for pod in drivers.schedulable),
        staying=frozenset(
            pod.name for pod in drivers.pods.values() if not pod.terminating and not pod.ended
        ),
        is_lost=drivers.is_lost,
        cordoned=drivers.cordoned,
        rolling=drivers.rolling,
    )


def _with_pin(assignment: Assignment, pin: DriverName) -> ObjectAssignment:
    return ObjectAssignment(
        assignment.task, assignment.driver, assignment.standbys, assignment.lost_incarnation, pin
    )


def build_assignment(assignment: ObjectAssignment) -> Object:
    """Return the fields of a unit's object that the operator owns.

    The resource version makes the write fail if the object has changed since it was read.
    """
    metadata = assignment.task.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplicationTask",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "resourceVersion": metadata.resource_version,
            "labels": assignment.standby_labels,
            "annotations": {PINNED_TO: assignment.pin} if assignment.pin else {},
        },
        "spec": {
            "driverName": assignment.driver,
            "standbyDriverNames": list(assignment.standbys),
            "lostIncarnation": assignment.lost_incarnation,
        },
    }
