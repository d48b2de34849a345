"""The status of a flow on Kubernetes: what the operator knows, then what its units say. Pure.

A list of small checks, the first that hits wins (as in cert-manager). Every reason stands in
docs/runbook.md, with what to do about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headrace.api import (
    ConditionStatus,
    ConditionType,
    FlowState,
    Lag,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    Unbuilt,
)
from headrace.api.labels import PAUSE_ANNOTATION
from headrace.controller.drivers import DriverPod, Drivers
from headrace.controller.names import driver_selector
from headrace.controller.targets import Taken
from headrace.status.flow_status import Readiness, condition, conditions_of, flow_status

_START_S = 60.0
"""From its container's start to its Lease a driver takes a few seconds, on a busy node more."""


@dataclass(frozen=True)
class Facts:
    """All that the checks may rest on."""

    now: datetime
    flow: ReplicationFlow
    tasks: Sequence[ReplicationTask]
    drivers: Drivers
    unbuilt: Unbuilt = field(default_factory=lambda: Unbuilt((), ()))
    taken: Taken | None = None
    trouble: Readiness | None = None
    """What kept the operator from making what the flow needs."""
    assignor_problem: str = ""
    refused_pods: str = ""
    """Why the API server takes no more driver pods, in its words."""


def status_of(facts: Facts) -> ReplicationFlowStatus:
    """What there is to say of a flow."""
    flow = facts.flow
    hit = next((verdict for check in CHECKS if (verdict := check(facts))), None)
    status = flow_status(
        flow,
        facts.tasks,
        facts.drivers.alive,
        facts.now,
        verdict=hit,
        problem=facts.assignor_problem,
    )
    selector = driver_selector(flow.metadata.name)
    return status.model_copy(
        update={
            "replicas": sum(not pod.ended for pod in facts.drivers.pods.values()),
            "selector": ",".join(f"{label}={value}" for label, value in selector.items()),
        }
    )


def status_without_units(
    verdict: Readiness, before: ReplicationFlowStatus, generation: int | None, now: datetime
) -> ReplicationFlowStatus:
    """When the units cannot be, or need not be, looked at: all figures stay as they were."""
    conditions = conditions_of(verdict, before, now)
    return before.model_copy(update={"observed_generation": generation, "conditions": conditions})


def paused_status(flow: ReplicationFlow, now: datetime) -> ReplicationFlowStatus:
    """Of a flow that the operator was told to leave alone: nobody knows how it stands."""
    verdict = Readiness(
        False,
        False,
        Reason.RECONCILIATION_PAUSED,
        f"the operator leaves this flow alone, as its annotation {PAUSE_ANNOTATION} says; all "
        "that is shown is from before",
    )
    before = flow.status or ReplicationFlowStatus()
    status = status_without_units(verdict, before, flow.metadata.generation, now)
    ready = status.conditions[0].model_copy(update={"status": ConditionStatus.UNKNOWN})
    old = condition(before.conditions, ConditionType.READY)
    if old is not None and old.status is ready.status:
        ready = ready.model_copy(update={"last_transition_time": old.last_transition_time})
    return status.model_copy(update={"conditions": (ready,)})


def is_news(before: ReplicationFlowStatus | None, after: ReplicationFlowStatus) -> bool:
    """Whether a status is worth a write: figures that only tell how much are when they leave their
    power-of-two band, all else at once."""
    return before is None or _rounded(before) != _rounded(after)


def _rounded(status: ReplicationFlowStatus) -> ReplicationFlowStatus:
    lag = status.lag or Lag()
    return status.model_copy(
        update={
            "lag": Lag(records=lag.records.bit_length(), seconds=lag.seconds.bit_length()),
            "bytes_per_second": (status.bytes_per_second or 0).bit_length(),
        }
    )


def _not_built(facts: Facts) -> Readiness | None:
    if not facts.unbuilt.refused:
        return None
    return Readiness(False, True, Reason.NOT_BUILT, "; ".join(facts.unbuilt.refused))


def _in_trouble(facts: Facts) -> Readiness | None:
    return facts.trouble


def _target_taken(facts: Facts) -> Readiness | None:
    if facts.taken is None:
        return None
    other = facts.taken.by.metadata
    return Readiness(
        False,
        True,
        Reason.TARGET_TOPIC_TAKEN,
        f"flow {other.name} of namespace {other.namespace} is older and writes topic "
        f"{facts.taken.topic} on the same target; this flow copies nothing until spec.topics of "
        "one is narrowed, or their source aliases or policies differ",
    )


def _stopped(facts: Facts) -> Readiness | None:
    if facts.flow.spec.state is not FlowState.STOPPED:
        return None
    held = sum(task.status.driver_name != "" for task in facts.tasks)
    if facts.drivers.pods or (held and facts.drivers.alive):
        return Readiness(False, False, Reason.STOPPING, f"drivers hand over {held} units and end")
    message = "stopped, as spec.state asks; with state: Running it goes on from where it stood"
    return Readiness(True, False, Reason.STOPPED, message)


def _no_drivers(facts: Facts) -> Readiness | None:
    if facts.drivers.alive:
        return None
    if facts.flow.spec.drivers.replicas == 0:
        said = "spec.drivers.replicas is 0: nothing is copied until it is scaled up"
        return Readiness(False, True, Reason.NO_DRIVERS, said)
    troubled = [pod for pod in facts.drivers.pods.values() if pod.problem]
    if troubled:
        first = troubled[0]
        said = f"no driver is alive; pod {first.name}: {first.problem}"
        return Readiness(False, False, Reason.NO_DRIVERS, said)
    if not facts.drivers.pods:
        said = "there is no driver pod yet; `kubectl describe` the flow's ReplicaSet if none comes"
        if facts.refused_pods:
            said = (
                f"the API server takes no driver pod: {facts.refused_pods}; change spec.drivers, "
                "or what the namespace allows"
            )
        return Readiness(False, False, Reason.NO_DRIVERS, said)
    if running := sum(_has_started(pod, facts.now) for pod in facts.drivers.pods.values()):
        said = (
            f"{running} driver pods run and none renews its Lease: look whether they reach the API "
            "server"
        )
        return Readiness(False, False, Reason.NO_DRIVERS, said)
    return Readiness(False, False, Reason.NO_DRIVERS, "drivers are starting")


def _has_started(pod: DriverPod, now: datetime) -> bool:
    since = pod.running_since
    return since is not None and not pod.terminating and (now - since).total_seconds() > _START_S


CHECKS = (_not_built, _in_trouble, _target_taken, _stopped, _no_drivers)
