"""Where the units of a flow run, and what is to be written to say so. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.api import API_VERSION, ReplicationFlow, ReplicationTask
from headrace.api.labels import MOVE_ANNOTATION, standby_label
from headrace.assign import DriverName, DriverState, TaskId
from headrace.controller.drivers import Drivers
from headrace.controller.names import PINNED_TO
from headrace.k8s import Object
from headrace.placement import Placement, Placer, task_id


@dataclass(frozen=True)
class Move:
    """A person's wish to have a unit on a driver (annotation ``headrace.dev/move-to``)."""

    task: ReplicationTask
    driver: DriverName
    refusal: str = ""
    """Why it cannot be; empty when it is done. Either way the annotation goes."""


@dataclass(frozen=True)
class Assignment:
    """What the spec of one unit is to say of where it runs."""

    task: ReplicationTask
    driver: DriverName
    standbys: tuple[DriverName, ...]
    lost: str
    """The life of the holder that is over, so that ``driver`` need not wait for it."""
    pin: DriverName = ""

    @property
    def standby_labels(self) -> dict[str, str]:
        """By which the standbys find the unit."""
        return {standby_label(driver): "" for driver in self.standbys}

    @property
    def is_news(self) -> bool:
        """Whether the unit's object says something else."""
        spec, metadata = self.task.spec, self.task.metadata
        said = (self.driver, self.standbys, self.lost, self.pin) == (
            spec.driver_name,
            spec.standby_driver_names,
            spec.lost_incarnation,
            metadata.annotations.get(PINNED_TO, ""),
        )
        return not said or not self.standby_labels.items() <= metadata.labels.items()


def requested_moves(tasks: Iterable[ReplicationTask], drivers: Drivers) -> list[Move]:
    """Every ``move-to`` that can be acted on; that to a driver which is still starting waits."""
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
            said = "is about to go" if pod else "does not exist"
            moves.append(
                Move(task, wanted, f"driver {wanted!r} {said}; units can move to: {there}")
            )
    return moves


def pins(
    tasks: Iterable[ReplicationTask], moves: Iterable[Move], drivers: Drivers
) -> dict[TaskId, DriverName]:
    """Units that a person put somewhere: for as long as that driver is there."""
    there = {driver.name for driver in drivers.schedulable} | drivers.cordoned
    held = {
        task_id(task): pin
        for task in tasks
        if (pin := task.metadata.annotations.get(PINNED_TO, "")) in there
    }
    return held | {task_id(move.task): move.driver for move in moves if not move.refusal}


def movable(
    tasks: Iterable[ReplicationTask], drivers: Drivers, pinned: Mapping[TaskId, DriverName]
) -> list[ReplicationTask]:
    """Units that the assignor decides on: not those that stay where they are for now."""
    return [
        task
        for task in tasks
        if task.spec.driver_name not in drivers.cordoned
        or pinned.get(task_id(task), task.spec.driver_name) != task.spec.driver_name
    ]


@dataclass(frozen=True)
class Plan:
    """What is to be done about the units of a flow now."""

    assignments: tuple[Assignment, ...]
    """What has to be written."""
    moves: tuple[Move, ...]
    """Wishes that were acted on."""
    problem: str
    """A sentence when the flow's assignor gave no good answer; else empty."""
    follow_up_ms: int | None
    """When to ask again though nothing happened, on the clock of ``now_ms``."""


def plan(
    flow: ReplicationFlow,
    tasks: Sequence[ReplicationTask],
    drivers: Drivers,
    scheduler: Placer,
    now_ms: int,
    *,
    barred: frozenset[TaskId] = frozenset(),
) -> Plan:
    """Decide for all units of ``flow``; may block for seconds (a plug-in is asked).

    ``barred`` are units that must run nowhere.
    """
    moves = requested_moves(tasks, drivers)
    pinned = pins(tasks, moves, drivers)
    placements = dict.fromkeys(barred, Placement(""))
    problem, follow_up_ms = "", None
    if drivers.schedulable:
        schedule = scheduler.decide(
            [flow],
            [task for task in movable(tasks, drivers, pinned) if task_id(task) not in barred],
            [DriverState(driver.name, rack=driver.rack) for driver in drivers.schedulable],
            now_ms,
            pins=pinned,
            balance=not drivers.rolling and not drivers.cordoned,
        )
        placements |= schedule.placements
        problem = schedule.problems.get(flow.metadata.name, "")
        follow_up_ms = schedule.follow_up_ms
    news = assignments(tasks, drivers, placements, pinned)
    return Plan(tuple(news), tuple(moves), problem, follow_up_ms)


def assignments(
    tasks: Iterable[ReplicationTask],
    drivers: Drivers,
    placements: Mapping[TaskId, Placement],
    pinned: Mapping[TaskId, DriverName],
) -> list[Assignment]:
    """What has to be written; units that no ``placements`` speak of stay where they are."""
    wanted = (_assignment(task, drivers, placements, pinned) for task in tasks)
    return [assignment for assignment in wanted if assignment.is_news]


def build_assignment(assignment: Assignment) -> Object:
    """All that the operator owns of a unit, valid for the version of it that was read."""
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
            "lostIncarnation": assignment.lost,
        },
    }


def _assignment(
    task: ReplicationTask,
    drivers: Drivers,
    placements: Mapping[TaskId, Placement],
    pinned: Mapping[TaskId, DriverName],
) -> Assignment:
    id, spec, holder = task_id(task), task.spec, task.status
    place = placements.get(id)
    if place is None:
        place = Placement(_where_it_was(task, drivers), spec.standby_driver_names)
    # A new life of the holder claims again by itself; only another driver has to be told.
    lost = ""
    if holder.driver_name not in ("", place.driver):
        over = drivers.is_lost(holder.driver_name, holder.driver_incarnation)
        lost = holder.driver_incarnation if over else ""
    if not lost and place.driver == spec.driver_name:
        lost = spec.lost_incarnation  # no write only to take back what hurts nobody
    return Assignment(task, place.driver, place.standbys, lost, pinned.get(id, ""))


def _where_it_was(task: ReplicationTask, drivers: Drivers) -> DriverName:
    """Nobody can take it: it stays, unless its pod is on the way out. (A driver whose Lease is
    expired may well run on, and we be the ones who see nothing.)"""
    pod = drivers.pods.get(task.spec.driver_name)
    gone = pod is None or pod.terminating or pod.ended
    return "" if gone else task.spec.driver_name
