"""The status of a flow, from its units: a list of checks, first hit wins (as in cert-manager)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    MirrorTestStatus,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    TaskCounts,
    TaskPhase,
    TaskType,
    TopicPartitions,
)
from headrace.replication.policies import HEARTBEATS


class Readiness(NamedTuple):
    """Whether the flow is ready, and why."""

    ready: bool
    stalled: bool
    reason: Reason
    message: str


_NONE: Mapping[str, Collection[str]] = {}
_LOCKED_OUT = (Reason.SECRET_MISSING, Reason.AUTHENTICATION_FAILED, Reason.TLS_FAILED)
"""Tried again all the same; but only somebody else can change that."""


def flow_status(
    flow: ReplicationFlow,
    tasks: Sequence[ReplicationTask],
    drivers: int,
    now: datetime,
    *,
    verdict: Readiness | None = None,
    problem: str = "",
    overdue: Mapping[str, Collection[str]] = _NONE,
) -> ReplicationFlowStatus:
    """What there is to say of ``flow``; ``drivers`` are those that are alive.

    ``verdict`` comes first when there is one: what whoever runs the units knows and they do not.
    ``problem`` is why its units are not placed as they should be. ``overdue`` are, for each driver,
    units that were taken from it because it did not let go in time. ``flow.status`` is what was
    said before: a condition whose status did not change keeps its time.
    """
    copying = [task for task in tasks if task.spec.type is TaskType.SOURCE_TASK]
    partitions = [
        at
        for task in copying
        for at in TopicPartitions.unpack(task.spec.partitions)
        if at.topic != HEARTBEATS
    ]
    verdict = verdict or _judge(tasks, drivers, problem)
    about = [*_about_copies(copying), *_about_placing(tasks, problem if drivers else "", overdue)]
    phases = [task.status.phase for task in tasks if not task.spec.type.is_connector]
    return ReplicationFlowStatus(
        observed_generation=flow.metadata.generation,
        conditions=conditions_of(verdict, flow.status, now, about),
        topics=len({at.topic for at in partitions}),
        partitions=len(partitions),
        tasks=TaskCounts(
            total=len(phases),
            running=phases.count(TaskPhase.RUNNING),
            restoring=phases.count(TaskPhase.RESTORING),
            paused=phases.count(TaskPhase.PAUSED),
            failed=phases.count(TaskPhase.FAILED),
        ),
        lag=Lag(
            records=sum(task.status.lag_records or 0 for task in copying),
            seconds=max((task.status.lag_seconds or 0 for task in copying), default=0),
        ),
        bytes_per_second=sum(task.status.bytes_per_second or 0 for task in copying),
        drivers=drivers,
        replicas=drivers,
    )


def condition(of: Iterable[Condition], type: ConditionType) -> Condition | None:
    """The condition of this type, if there is one."""
    return next((condition for condition in of if condition.type is type), None)


def _judge(tasks: Sequence[ReplicationTask], drivers: int, problem: str) -> Readiness:
    return (
        _no_drivers(drivers)
        or _unplaced(tasks, problem)
        or _failed(tasks)
        or _connector_says_no(tasks)
        or _starting(tasks)
        or _running(tasks)
    )


def _no_drivers(drivers: int) -> Readiness | None:
    if drivers:
        return None
    return Readiness(False, False, Reason.NO_DRIVERS, "no driver is alive; units wait for one")


def _unplaced(tasks: Sequence[ReplicationTask], problem: str) -> Readiness | None:
    waiting = [task.metadata.name for task in tasks if not task.spec.driver_name]
    if not waiting or not problem:
        return None
    message = f"{len(waiting)} of {len(tasks)} units wait for a driver: {problem}"
    return Readiness(False, False, Reason.NOT_PLACED, message)


def _failed(tasks: Sequence[ReplicationTask]) -> Readiness | None:
    failed = [task for task in tasks if task.status.phase is TaskPhase.FAILED]
    if not failed:
        return None
    first = failed[0]
    error = first.status.last_error
    said = condition(first.status.conditions, ConditionType.READY)
    reason = Reason.TASK_FAILED if said is None else said.reason
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    message = (
        f"{first.metadata.name} failed{others}: {error.message if error else 'no reason given'}"
    )
    return Readiness(False, first.spec.type.is_connector, reason, message)


def _connector_says_no(tasks: Sequence[ReplicationTask]) -> Readiness | None:
    for task in tasks:
        said = condition(task.status.conditions, ConditionType.READY)
        if said is not None and said.status is ConditionStatus.FALSE:
            return Readiness(False, said.reason in _LOCKED_OUT, said.reason, said.message)
    return None


def _starting(tasks: Sequence[ReplicationTask]) -> Readiness | None:
    connector = next((t for t in tasks if t.spec.type is TaskType.SOURCE_CONNECTOR), None)
    said = connector and condition(connector.status.conditions, ConditionType.READY)
    if not said:
        return Readiness(False, False, Reason.STARTING, "the source connector takes its first look")
    settled = (TaskPhase.RUNNING, TaskPhase.PAUSED)
    waiting = [task for task in tasks if task.status.phase not in settled]
    if not waiting:
        return None
    errors = (f": {error.message}" for task in waiting if (error := task.status.last_error))
    return Readiness(
        False,
        False,
        Reason.STARTING,
        f"{len(waiting)} of {len(tasks)} units do not run yet{next(errors, '')}",
    )


def _running(tasks: Sequence[ReplicationTask]) -> Readiness:
    """All run: say what is worth knowing all the same."""
    for task in tasks:
        if error := task.status.last_error:
            return Readiness(True, False, Reason.RUNNING, f"{task.metadata.name}: {error.message}")
    warned = (
        said
        for task in tasks
        if (said := condition(task.status.conditions, ConditionType.READY))
        and said.reason is not Reason.RUNNING
    )
    if said := next(warned, None):
        return Readiness(True, False, said.reason, said.message)
    paused = sum(task.status.phase is TaskPhase.PAUSED for task in tasks)
    if paused:
        message = f"{paused} of {len(tasks)} units are paused: spec.state Running lets them go on"
        return Readiness(True, False, Reason.RUNNING, message)
    return Readiness(True, False, Reason.RUNNING, f"all {len(tasks)} units run")


def conditions_of(
    verdict: Readiness,
    before: ReplicationFlowStatus | MirrorTestStatus | None,
    now: datetime,
    others: Iterable[Condition] = (),
) -> tuple[Condition, ...]:
    """Ready always, Stalled or Reconciling when true (kstatus), and ``others``; each with the time
    at which it got its status, as ``before`` knows it or ``now``."""

    def holds(type: ConditionType, holds: bool = True) -> Condition:
        status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
        return Condition(type=type, status=status, reason=verdict.reason, message=verdict.message)

    conditions = [holds(ConditionType.READY, verdict.ready)]
    if verdict.stalled:
        conditions.append(holds(ConditionType.STALLED))
    elif not verdict.ready:
        conditions.append(holds(ConditionType.RECONCILING))
    return _since([*conditions, *others], before, now)


def _about_copies(copying: Sequence[ReplicationTask]) -> Iterable[Condition]:
    """What source tasks saw of the copies, joined."""
    for type in (ConditionType.DATA_LOSS_DETECTED, ConditionType.FOREIGN_WRITER):
        said = [c for t in copying if (c := condition(t.status.conditions, type))]
        if said:
            messages = "; ".join(dict.fromkeys(c.message for c in said))
            yield said[0].model_copy(update={"message": messages[:4096]})


def _about_placing(
    tasks: Sequence[ReplicationTask], problem: str, overdue: Mapping[str, Collection[str]]
) -> Iterable[Condition]:
    """What is wrong with who runs what, while there is something."""
    if problem:
        yield Condition(
            type=ConditionType.ASSIGNMENT_FAILED,
            status=ConditionStatus.TRUE,
            reason=Reason.NOT_PLACED,
            message=problem[:4096],
        )
    ours = {task.metadata.name for task in tasks}
    named = {driver: sorted(ours & set(units)) for driver, units in sorted(overdue.items())}
    late = [f"{driver} ({', '.join(units)})" for driver, units in named.items() if units]
    if late:
        yield Condition(
            type=ConditionType.DRIVER_UNRESPONSIVE,
            status=ConditionStatus.TRUE,
            reason=Reason.REVOKE_NOT_ACKNOWLEDGED,
            message=f"taken from drivers that did not let go in time: {'; '.join(late)[:3000]}; "
            "what hangs there ends with that driver's process: end it when it does no other work",
        )


def _since(
    conditions: Iterable[Condition],
    before: ReplicationFlowStatus | MirrorTestStatus | None,
    now: datetime,
) -> tuple[Condition, ...]:
    timed = []
    for new in conditions:
        old = condition(before.conditions, new.type) if before else None
        kept = old is not None and old.status is new.status
        since = old.last_transition_time if old is not None and kept else now
        timed.append(new.model_copy(update={"last_transition_time": since}))
    return tuple(timed)
