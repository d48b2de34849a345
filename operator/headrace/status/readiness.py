"""Checks that decide from the facts of a flow whether it is ready.

docs/runbook.md has an entry for every reason. Some facts are known only to the operator. In
standalone mode, checks of these facts always pass.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from headrace.api import (
    MAX_MESSAGE_LENGTH,
    PAUSE_ANNOTATION,
    ConditionStatus,
    ConditionType,
    FlowState,
    LastValid,
    Pauses,
    Readiness,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    TaskPhase,
    TaskType,
    TopicPartition,
    TopicPartitions,
    desired_drivers,
    find_condition,
    wants_watch,
)


class PodFacts(Protocol):
    """Driver pod."""

    @property
    def name(self) -> str:
        """Name of the pod."""

    @property
    def terminating(self) -> bool:
        """True if the pod is being deleted."""

    @property
    def ended(self) -> bool:
        """True if all containers of the pod have ended and are not restarted."""

    @property
    def problem(self) -> str:
        """Reason why the pod does not run. Empty if it runs."""

    @property
    def running_since(self) -> datetime | None:
        """Time at which the containers of the pod started, or None."""


class ContestedObject(Protocol):
    """Object of a flow that other managers change again and again."""

    @property
    def name(self) -> str:
        """Kind and name."""

    @property
    def managers(self) -> Sequence[str]:
        """Field managers that change it, or none if they are unknown."""


@dataclass(frozen=True)
class TakenTarget:
    """Target topic that an older flow already writes."""

    by: ReplicationFlow
    topic: str


@dataclass(frozen=True)
class FlowFacts:
    """Input of all checks. Fields that only one mode has are optional.

    ``flow.status`` is the previous status. An unchanged condition keeps its transition time.
    """

    now: datetime
    flow: ReplicationFlow
    tasks: Sequence[ReplicationTask]
    alive: int
    """Number of drivers that are alive."""
    placement_problem: str = ""
    """Reason why units are not assigned as they should be, or empty."""
    is_lost: Callable[[str, str], bool] = lambda driver, incarnation: False
    """Returns True if an incarnation of a driver is lost: it renews no Lease, or sends no
    heartbeats."""

    # Only in standalone mode.
    overdue: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Units that drivers did not release in time after a request, by driver."""

    # Only in the operator.
    blocked: Readiness | None = None
    """Problem that a user must fix before the operator can create what the flow needs."""
    last_valid: LastValid | None = None
    """Last valid spec, which is in force because the flow's own spec is invalid."""
    taken: TakenTarget | None = None
    loop: str = ""
    """Reason why the flow would copy records in a loop, or empty."""
    pods: Sequence[PodFacts] | None = None
    """Driver pods, or None in standalone mode."""
    paused: bool = False
    """True if reconciliation is paused. The operator then only reassigns units."""
    waits_for_rollout: bool = False
    """True if the rollout of this flow waits for other flows."""
    refused_pods: str = ""
    """Message with which the API server rejects further driver pods, or empty."""
    stuck_rollout: str = ""
    """Reason why a roll-out of drivers does not end, or empty."""
    contested: Sequence[ContestedObject] = ()
    """Objects of the flow that other managers change again and again."""
    selector: str | None = None
    """Labels of the driver pods, for the scale subresource."""

    @property
    def desired(self) -> int:
        return desired_drivers(self.flow, self.tasks)

    @property
    def watch(self) -> ReplicationTask | None:
        """Unit that watches the source of a stopped flow, or None."""
        if not wants_watch(self.flow):
            return None
        return next((one for one in self.tasks if one.spec.type is TaskType.SOURCE_WATCH), None)

    @property
    def source_tasks(self) -> list[ReplicationTask]:
        return [task for task in self.tasks if task.spec.type is TaskType.SOURCE_TASK]


Check = Callable[[FlowFacts], Readiness | None]

_START_S = 60.0
"""Time in seconds from the start of a container until its driver must have a Lease.

A driver usually has its Lease after a few seconds. On a busy node it takes longer.
"""
_LOCKED_OUT = (Reason.SECRET_MISSING, Reason.AUTHENTICATION_FAILED, Reason.TLS_FAILED)
"""Reasons of errors that are retried although only a user can fix the problem."""


_SETTLED = (TaskPhase.RUNNING, TaskPhase.PAUSED)


def judge(facts: FlowFacts) -> Readiness:
    """Return the result of the first check that finds a problem, or ready if there is none."""
    return next((hit for check in CHECKS if (hit := check(facts))), None) or _ready(facts)


def _blocked(facts: FlowFacts) -> Readiness | None:
    return facts.blocked


def _target_taken(facts: FlowFacts) -> Readiness | None:
    if facts.taken is None:
        return None
    other = facts.taken.by.metadata
    return Readiness.stalled(
        Reason.TARGET_TOPIC_TAKEN,
        f"flow {other.name} of namespace {other.namespace} is older and writes topic "
        f"{facts.taken.topic} on the same target; this flow copies nothing until spec.topics of "
        "one flow is narrowed, or their source aliases or policies differ",
    )


def _goes_round(facts: FlowFacts) -> Readiness | None:
    return Readiness.stalled(Reason.REPLICATION_LOOP, facts.loop) if facts.loop else None


def _stopped(facts: FlowFacts) -> Readiness | None:
    if facts.flow.spec.state is not FlowState.STOPPED:
        return None
    watch, watching = facts.watch, facts.desired > 0
    others = (task for task in facts.tasks if task is not watch or not watching)
    held = sum(task.status.driver_name != "" for task in others)
    ends = bool(facts.pods) and not watching
    if ends or (held and facts.alive):
        and_end = " and end" if ends else ""
        return Readiness.reconciling(Reason.STOPPING, f"drivers hand over {held} units{and_end}")
    message = (
        "stopped, as spec.state requires; with state: Running it resumes at its stored offsets"
    )
    if not watching:
        ended = "; the watch of the source has ended: a flow copies back" if watch else ""
        return Readiness.ready(Reason.STOPPED, f"{message}{ended}")
    only = replace(facts, tasks=[watch] if watch else [])
    if problem := next((hit for check in _CHECKS_OF_WATCH if (hit := check(only))), None):
        return problem
    ready = watch and find_condition(watch.status.conditions, ConditionType.READY)
    return Readiness.ready(Reason.STOPPED, f"{message}; {ready.message if ready else ''}")


def _scaled_to_zero(facts: FlowFacts) -> Readiness | None:
    if facts.alive or facts.pods is None or facts.flow.spec.drivers.replicas:
        return None
    message = "spec.drivers.replicas is 0: nothing is copied until it is scaled up"
    return Readiness.stalled(Reason.NO_DRIVERS, message)


def _pod_does_not_start(facts: FlowFacts) -> Readiness | None:
    if facts.alive:
        return None
    for pod in facts.pods or ():
        if pod.problem:
            message = f"no driver is alive; pod {pod.name}: {pod.problem}"
            return Readiness.reconciling(Reason.NO_DRIVERS, message)
    return None


def _no_pods(facts: FlowFacts) -> Readiness | None:
    if facts.alive or facts.pods is None or facts.pods:
        return None
    if facts.refused_pods:
        return Readiness.reconciling(
            Reason.REFUSED,
            f"the API server takes no driver pod: {facts.refused_pods}; change spec.drivers, "
            "or what the namespace allows",
        )
    message = (
        "there is no driver pod yet; if none appears, `kubectl describe` the flow's ReplicaSet"
    )
    if facts.paused:
        message = (
            f"there is no driver pod, and the annotation {PAUSE_ANNOTATION} keeps the operator "
            "from changing the Deployment: remove the annotation"
        )
    return Readiness.reconciling(Reason.NO_DRIVERS, message)


def _no_leases(facts: FlowFacts) -> Readiness | None:
    if facts.alive:
        return None
    started = sum(_has_started(pod, facts.now) for pod in facts.pods or ())
    if not started:
        return None
    return Readiness.reconciling(
        Reason.NO_DRIVERS,
        f"{started} driver pods started, and none renews its Lease: check that they can reach the "
        "API server",
    )


def _has_started(pod: PodFacts, now: datetime) -> bool:
    since = pod.running_since
    return since is not None and not pod.terminating and (now - since).total_seconds() > _START_S


def _no_drivers(facts: FlowFacts) -> Readiness | None:
    if facts.alive:
        return None
    message = "drivers are starting" if facts.pods else "no driver is alive; units wait for one"
    return Readiness.reconciling(Reason.NO_DRIVERS, message)


def _not_placed(facts: FlowFacts) -> Readiness | None:
    waiting = [task for task in facts.tasks if not task.spec.driver_name]
    if not waiting or not facts.placement_problem:
        return None
    return Readiness.reconciling(
        Reason.NOT_PLACED,
        f"{len(waiting)} of {len(facts.tasks)} units wait for a driver: {facts.placement_problem}",
    )


def _others(tasks: Sequence[ReplicationTask]) -> str:
    return f" (and {len(tasks) - 1} more)" if len(tasks) > 1 else ""


def _task_failed(facts: FlowFacts) -> Readiness | None:
    failed = [task for task in facts.tasks if task.status.phase is TaskPhase.FAILED]
    if not failed:
        return None
    first = failed[0]
    error = first.status.last_error
    ready = find_condition(first.status.conditions, ConditionType.READY)
    reason = Reason.TASK_FAILED if ready is None else ready.reason
    why = error.message if error else "no reason given"
    message = f"{first.metadata.name} failed{_others(failed)}: {why}"
    # A failed task is restarted. A failed connector waits for a change.
    make = Readiness.stalled if first.spec.type.is_connector else Readiness.reconciling
    return make(reason, message)


def _unit_not_ready(facts: FlowFacts) -> Readiness | None:
    for task in facts.tasks:
        ready = find_condition(task.status.conditions, ConditionType.READY)
        if ready is not None and ready.status is ConditionStatus.FALSE:
            make = Readiness.stalled if ready.reason in _LOCKED_OUT else Readiness.reconciling
            return make(ready.reason, ready.message)
    return None


def _connector_starts(facts: FlowFacts) -> Readiness | None:
    connector = next((t for t in facts.tasks if t.spec.type is TaskType.SOURCE_CONNECTOR), None)
    if connector and find_condition(connector.status.conditions, ConditionType.READY):
        return None
    message = "the source connector waits for a driver"
    if connector and connector.status.driver_name:
        known = facts.flow.status is not None and facts.flow.status.topics
        message = f"the source connector polls the source{'' if known else ' for the first time'}"
    return Readiness.reconciling(Reason.STARTING, message)


def _failed_over(facts: FlowFacts) -> Readiness | None:
    """Return Stalled after a fail-over. Units retry, but only a user can end that state."""
    for task in facts.tasks:
        error = task.status.last_error
        if task.status.phase not in _SETTLED and error and error.reason == Reason.FAILED_OVER:
            return Readiness.stalled(Reason.FAILED_OVER, error.message)
    return None


def _units_start(facts: FlowFacts) -> Readiness | None:
    waiting = [task for task in facts.tasks if task.status.phase not in _SETTLED]
    if not waiting:
        return None
    first = next((task for task in waiting if task.status.last_error), waiting[0])
    error = first.status.last_error
    why = f": {error.message}" if error else ""
    return Readiness.reconciling(
        Reason.STARTING, f"{first.metadata.name} does not run yet{_others(waiting)}{why}"
    )


def _unit_recovers(facts: FlowFacts) -> Readiness | None:
    for task in facts.tasks:
        if error := task.status.last_error:
            return Readiness.ready(Reason.RUNNING, f"{task.metadata.name}: {error.message}")
    return None


def _unit_warns(facts: FlowFacts) -> Readiness | None:
    for task in facts.tasks:
        ready = find_condition(task.status.conditions, ConditionType.READY)
        if ready is not None and ready.reason is not Reason.RUNNING:
            return Readiness.ready(ready.reason, ready.message)
    return None


def _paused(facts: FlowFacts) -> Readiness | None:
    paused = sum(task.status.phase is TaskPhase.PAUSED for task in facts.tasks)
    if not paused:
        return None
    return Readiness.ready(
        Reason.RUNNING,
        f"{paused} of {len(facts.tasks)} units are paused: spec.state Running resumes them",
    )


def _partitions_paused(facts: FlowFacts) -> Readiness | None:
    items = facts.flow.spec.paused_partitions
    if not items:
        return None
    known: dict[str, set[TopicPartition]] = defaultdict(set)
    for task in facts.source_tasks:
        for at in TopicPartitions.unpack(task.spec.partitions):
            known[at.topic].add(at)
    paused = sum(len(at) for at in map(Pauses.of(items).among, known.values()))
    of = sum(map(len, known.values()))
    message = f"{paused} of {of} partitions are paused by spec.pausedPartitions"
    if absent := [str(item) for item in items if not Pauses.of([item]).among(known[item.topic])]:
        message += f"; the flow does not copy these (yet): {', '.join(absent)}"
    return Readiness.ready(Reason.RUNNING, message[:MAX_MESSAGE_LENGTH])


def _ready(facts: FlowFacts) -> Readiness:
    return Readiness.ready(Reason.RUNNING, f"all {len(facts.tasks)} units run")


def _watch_starts(facts: FlowFacts) -> Readiness | None:
    errors = []
    for watch in facts.tasks:
        ready = find_condition(watch.status.conditions, ConditionType.READY)
        if ready is not None and watch.status.phase is TaskPhase.RUNNING:
            return None
        errors = [f": {watch.status.last_error.message}"] if watch.status.last_error else []
    message = f"stopped; the source is not watched yet{''.join(errors)}"
    return Readiness.reconciling(Reason.STARTING, message)


_CHECKS_OF_WATCH: tuple[Check, ...] = (
    _pod_does_not_start,
    _no_pods,
    _no_leases,
    _no_drivers,
    _not_placed,
    _task_failed,
    _unit_not_ready,
    _watch_starts,
)
"""Checks of a stopped flow whose only unit is the watch of its source."""

CHECKS: tuple[Check, ...] = (
    # Problems that prevent the flow from running.
    _blocked,
    _target_taken,
    _goes_round,
    _stopped,
    # Drivers.
    _scaled_to_zero,
    _pod_does_not_start,
    _no_pods,
    _no_leases,
    _no_drivers,
    # Units.
    _not_placed,
    _task_failed,
    _unit_not_ready,
    _connector_starts,
    _failed_over,
    _units_start,
    # Ready, with a message that a user should read.
    _unit_recovers,
    _unit_warns,
    _paused,
    _partitions_paused,
)
