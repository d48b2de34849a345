"""Status of a flow: readiness, conditions of its units, and figures."""

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import replace
from datetime import datetime
from itertools import chain

from headrace.api import (
    HEARTBEATS,
    MAX_MESSAGE_LENGTH,
    PAUSE_ANNOTATION,
    RESET_ANNOTATION,
    Condition,
    ConditionStatus,
    ConditionType,
    FlowState,
    Lag,
    LostOffsets,
    Readiness,
    Reason,
    ReplicationFlowStatus,
    Reporter,
    Resets,
    TaskCounts,
    TaskPhase,
    TaskType,
    TopicPartitions,
    conditions_of,
    find_condition,
    reported_by,
)
from headrace.errors import InvalidSpec
from headrace.status.readiness import FlowFacts, judge

_MAX_LOSSES = 100
_MAX_DRIVERS = 1000


def flow_status(facts: FlowFacts) -> ReplicationFlowStatus:
    """Return the status of a flow whose units are known."""
    lost = _lost_owners(facts)
    facts = _without_figures_of(lost, facts)
    copying = facts.source_tasks
    partitions = [
        at
        for task in copying
        for at in TopicPartitions.unpack(task.spec.partitions)
        if at.topic != HEARTBEATS
    ]
    others = [
        *_about_copies(facts),
        *_about_resets(facts),
        *_about_placement(facts),
        *_about_drivers(facts),
        *_about_objects(facts),
    ]
    phases = [task.status.phase for task in facts.tasks if not task.spec.type.is_connector]
    pods = facts.pods
    generation = facts.flow.metadata.generation
    if facts.paused:  # changes of the spec since the pause were not reconciled
        generation = facts.flow.status.observed_generation if facts.flow.status else None
    return ReplicationFlowStatus(
        observed_generation=generation,
        conditions=conditions_of(
            judge(facts), facts.flow.status, facts.now, others, generation=generation
        ),
        topics=len({at.topic for at in partitions}),
        partitions=len(partitions),
        tasks=TaskCounts(
            total=len(phases),
            running=phases.count(TaskPhase.RUNNING),
            restoring=phases.count(TaskPhase.RESTORING),
            paused=phases.count(TaskPhase.PAUSED),
            failed=sum(task.status.phase is TaskPhase.FAILED for task in facts.tasks),
        ),
        lag=_lag(facts),
        bytes_per_second=sum(task.status.bytes_per_second or 0 for task in copying),
        losses=_latest_losses(facts),
        source_writes=tuple(one for task in facts.tasks for one in task.status.source_writes),
        ready_replicas=facts.alive,
        desired_replicas=facts.desired,
        lost_drivers=tuple(sorted({driver for driver, _ in lost}))[:_MAX_DRIVERS],
        replicas=facts.alive if pods is None else sum(not pod.ended for pod in pods),
        selector=facts.selector,
        last_valid=facts.last_valid,
    )


def _lost_owners(facts: FlowFacts) -> frozenset[tuple[str, str]]:
    """Return the lost drivers that own units, with their incarnations."""
    statuses = (task.status for task in facts.tasks if task.status.driver_name)
    owners = {(status.driver_name, status.driver_incarnation) for status in statuses}
    return frozenset(owner for owner in owners if facts.is_lost(*owner))


def _without_figures_of(lost: Set[tuple[str, str]], facts: FlowFacts) -> FlowFacts:
    """Return the facts without the phases, lags and rates of units whose driver is lost."""
    if not lost:
        return facts
    unknown = {"phase": None, "lag": None, "bytes_per_second": None}
    tasks = []
    for task in facts.tasks:
        status = task.status
        if (status.driver_name, status.driver_incarnation) in lost:
            known = status.model_copy(update=unknown)
            tasks.append(task.model_copy(update={"status": known}))
        else:
            tasks.append(task)
    return replace(facts, tasks=tasks)


def _lag(facts: FlowFacts) -> Lag | None:
    """Return the lag of all tasks.

    Return None if a task does not know its lag, and for a stopped flow, because no task reads the
    source.
    """
    copying = facts.source_tasks
    if facts.flow.spec.state is FlowState.STOPPED:
        return None
    if any(task.status.lag is None for task in copying) or not (copying or _has_polled(facts)):
        return None
    lags = [task.status.lag for task in copying if task.status.lag]
    return Lag(
        records=sum(lag.records for lag in lags),
        seconds=max((lag.seconds for lag in lags), default=0),
    )


def _has_polled(facts: FlowFacts) -> bool:
    """Return True if the source connector has reported the topics that match."""
    return any(
        find_condition(task.status.conditions, ConditionType.READY)
        for task in facts.tasks
        if task.spec.type is TaskType.SOURCE_CONNECTOR
    )


def status_without_units(
    readiness: Readiness,
    before: ReplicationFlowStatus | None,
    generation: int | None,
    now: datetime,
) -> ReplicationFlowStatus:
    """Return the status of a flow whose units are not observed. All figures remain unchanged."""
    before = before or ReplicationFlowStatus()
    conditions = conditions_of(readiness, before, now, generation=generation)
    return before.model_copy(update={"observed_generation": generation, "conditions": conditions})


def is_significant(before: ReplicationFlowStatus | None, after: ReplicationFlowStatus) -> bool:
    """Return True if a new status must be written.

    Changes of lag and throughput count only if they cross a power of two. All other changes count.
    """
    return before is None or _rounded(before) != _rounded(after)


def _rounded(status: ReplicationFlowStatus) -> ReplicationFlowStatus:
    lag = status.lag
    return status.model_copy(
        update={
            "lag": lag and Lag(records=lag.records.bit_length(), seconds=lag.seconds.bit_length()),
            "bytes_per_second": (status.bytes_per_second or 0).bit_length(),
        }
    )


def _latest_losses(facts: FlowFacts) -> tuple[LostOffsets, ...]:
    """Return the latest loss of each partition.

    A task that does not copy a partition any more may still report an earlier loss.
    """
    losses = sorted(
        (loss for task in facts.tasks for loss in task.status.losses),
        key=lambda loss: loss.time,
    )
    latest = {(loss.topic, loss.partition): loss for loss in losses}
    return tuple(latest.values())[-_MAX_LOSSES:]


def _about_copies(facts: FlowFacts) -> Iterable[Condition]:
    """Yield conditions of source connector, source tasks and source watch, one for each type."""
    observed = defaultdict[ConditionType, list[Condition]](list)
    for one in (one for task in facts.tasks for one in task.status.conditions):
        if one.status is ConditionStatus.TRUE:  # a watch that has ended reports False
            observed[one.type].append(one)
    for type in reported_by(Reporter.TASK | Reporter.CONNECTOR | Reporter.WATCH):
        if found := observed[type]:
            messages = "; ".join(dict.fromkeys(c.message for c in found))
            yield found[0].model_copy(update={"message": messages[:MAX_MESSAGE_LENGTH]})


def _about_resets(facts: FlowFacts) -> Iterable[Condition]:
    """Yield a condition about partitions that were reset, or about an invalid annotation."""
    type = ConditionType.PARTITIONS_RESET
    found = [c for t in facts.source_tasks if (c := find_condition(t.status.conditions, type))]
    messages = [c.message for c in found]
    try:
        asked = Resets.from_metadata(facts.flow.metadata)
    except InvalidSpec as error:
        found, messages = [], [str(error)]
    else:
        if asked.times and facts.source_tasks:
            copied = (TopicPartitions.unpack(task.spec.partitions) for task in facts.source_tasks)
            if (absent := asked.absent(chain.from_iterable(copied))).times:
                words = f"{RESET_ANNOTATION} names partitions that are not copied (yet): {absent}"
                messages.append(words)
    if messages:
        yield Condition(
            type=type,
            status=ConditionStatus.TRUE if found else ConditionStatus.FALSE,
            reason=Reason.RESET_BY_ANNOTATION if found else Reason.INVALID_RESET,
            message="; ".join(messages)[:MAX_MESSAGE_LENGTH],
        )


def _about_placement(facts: FlowFacts) -> Iterable[Condition]:
    if facts.placement_problem and facts.alive:
        yield Condition(
            type=ConditionType.ASSIGNMENT_FAILED,
            status=ConditionStatus.TRUE,
            reason=Reason.NOT_PLACED,
            message=facts.placement_problem[:MAX_MESSAGE_LENGTH],
        )


def _drivers_alive(alive: int, desired: int) -> str:
    if alive > desired:
        return f"{alive} drivers are alive, more than the desired {desired}: the others end"
    return f"{alive} of {desired} drivers are alive" if desired else "no driver is desired"


def _why_missing(facts: FlowFacts) -> str:
    """Return the reason why drivers are missing, from their pods or their Deployment."""
    if facts.refused_pods:
        return f"; the API server takes no more pods: {facts.refused_pods}"
    pods = facts.pods or ()
    if problem := next((f"; pod {pod.name}: {pod.problem}" for pod in pods if pod.problem), ""):
        return problem
    starting = sum(not pod.ended and not pod.terminating for pod in pods) - facts.alive
    if starting <= 0:
        return "; their pods do not exist yet"
    return "; 1 is starting" if starting == 1 else f"; {starting} are starting"


def _about_objects(facts: FlowFacts) -> Iterable[Condition]:
    """Yield a condition about objects that other managers change again and again."""
    found = [
        f"{one.name} (by {', '.join(one.managers) or 'an unknown manager'})"
        for one in facts.contested
    ]
    if found:
        yield Condition(
            type=ConditionType.OBJECTS_CONTESTED,
            status=ConditionStatus.TRUE,
            reason=Reason.CHANGED_AGAIN,
            message="others change these objects again and again, and the operator reverts that at "
            f"growing intervals: {'; '.join(found)}. Change spec.drivers of the flow instead, or "
            "stop the other manager"[:MAX_MESSAGE_LENGTH],
        )


def _about_drivers(facts: FlowFacts) -> Iterable[Condition]:
    if facts.paused:
        yield Condition(
            type=ConditionType.RECONCILIATION_PAUSED,
            status=ConditionStatus.TRUE,
            reason=Reason.RECONCILIATION_PAUSED,
            message=f"the annotation {PAUSE_ANNOTATION} keeps the operator from changing what the "
            "flow owns; units of lost drivers are still assigned",
        )
    elif (asked := facts.flow.metadata.annotations.get(PAUSE_ANNOTATION, "")).lower() not in (
        "",
        "false",
        "true",
    ):
        yield Condition(
            type=ConditionType.RECONCILIATION_PAUSED,
            status=ConditionStatus.FALSE,
            reason=Reason.INVALID_ANNOTATION,
            message=f"the annotation {PAUSE_ANNOTATION} has the value {asked!r} and is ignored: "
            "write true or false",
        )
    if facts.pods is not None:
        waits = "; their roll-out waits for its turn" if facts.waits_for_rollout else ""
        enough = facts.alive >= facts.desired
        of = _drivers_alive(facts.alive, facts.desired)
        why = "" if enough else _why_missing(facts)
        yield Condition(
            type=ConditionType.DRIVERS_AVAILABLE,
            status=ConditionStatus.TRUE if enough else ConditionStatus.FALSE,
            reason=Reason.DRIVERS_ALIVE if enough else Reason.DRIVERS_MISSING,
            message=f"{of}{why}{waits}"[:MAX_MESSAGE_LENGTH],
        )
    if facts.stuck_rollout:
        yield Condition(
            type=ConditionType.ROLLOUT_STUCK,
            status=ConditionStatus.TRUE,
            reason=Reason.PODS_NOT_READY,
            message=f"the roll-out does not end: {facts.stuck_rollout}"[:MAX_MESSAGE_LENGTH],
        )
    ours = {task.metadata.name for task in facts.tasks}
    named = {driver: sorted(ours & set(units)) for driver, units in sorted(facts.overdue.items())}
    late = [f"{driver} ({', '.join(units)})" for driver, units in named.items() if units]
    if late:
        yield Condition(
            type=ConditionType.DRIVER_UNRESPONSIVE,
            status=ConditionStatus.TRUE,
            reason=Reason.REVOKE_NOT_ACKNOWLEDGED,
            message="taken from drivers that did not release them in time: "
            f"{'; '.join(late)[:3000]}; a hanging unit ends only with its driver's process: end "
            "the process when it does no other work",
        )
