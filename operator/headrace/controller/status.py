"""The status of a flow on Kubernetes: what the operator knows, then what its units say. Pure.

A list of small checks, the first that hits wins (as in cert-manager). Every reason stands in
docs/operator.md, with what to do about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headrace.api import (
    FlowState,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    Unbuilt,
)
from headrace.controller.drivers import Drivers
from headrace.controller.names import driver_selector
from headrace.controller.targets import Taken
from headrace.replication.flow_status import Verdict, flow_status


@dataclass(frozen=True)
class Facts:
    """All that the checks may rest on."""

    flow: ReplicationFlow
    tasks: Sequence[ReplicationTask]
    drivers: Drivers
    unbuilt: Unbuilt = field(default_factory=lambda: Unbuilt((), ()))
    taken: Taken | None = None
    trouble: Verdict | None = None
    """What kept the operator from making what the flow needs."""
    assignor_problem: str = ""


def status_of(facts: Facts, now: datetime) -> ReplicationFlowStatus:
    """What there is to say of a flow."""
    flow = facts.flow
    hit = next((verdict for check in CHECKS if (verdict := check(facts))), None)
    status = flow_status(flow, facts.tasks, facts.drivers.alive, now, hit)
    selector = driver_selector(flow.metadata.name)
    return status.model_copy(
        update={
            "replicas": sum(not pod.ended for pod in facts.drivers.pods.values()),
            "selector": ",".join(f"{label}={value}" for label, value in selector.items()),
        }
    )


def _not_built(facts: Facts) -> Verdict | None:
    if not facts.unbuilt.refused:
        return None
    return Verdict(False, True, Reason.NOT_BUILT, "; ".join(facts.unbuilt.refused))


def _in_trouble(facts: Facts) -> Verdict | None:
    return facts.trouble


def _target_taken(facts: Facts) -> Verdict | None:
    if facts.taken is None:
        return None
    other = facts.taken.by.metadata
    return Verdict(
        False,
        True,
        Reason.TARGET_TOPIC_TAKEN,
        f"flow {other.name} of namespace {other.namespace} is older and writes topic "
        f"{facts.taken.topic} on the same target; this flow copies nothing until spec.topics of "
        "one is narrowed, or their source aliases or policies differ",
    )


def _stopped(facts: Facts) -> Verdict | None:
    if facts.flow.spec.state is not FlowState.STOPPED:
        return None
    held = sum(task.status.driver_name != "" for task in facts.tasks)
    if facts.drivers.pods or (held and facts.drivers.alive):
        return Verdict(False, False, Reason.STOPPING, f"drivers hand over {held} units and end")
    message = "stopped, as spec.state asks; with state: Running it goes on from where it stood"
    return Verdict(True, False, Reason.STOPPED, message)


def _no_drivers(facts: Facts) -> Verdict | None:
    if facts.drivers.alive:
        return None
    if facts.flow.spec.drivers.replicas == 0:
        said = (
            "spec.drivers.replicas is 0: scale it up, or set state: Stopped to say that you mean it"
        )
        return Verdict(False, True, Reason.NO_DRIVERS, said)
    troubled = [pod for pod in facts.drivers.pods.values() if pod.problem]
    if troubled:
        first = troubled[0]
        said = f"no driver is alive; pod {first.name}: {first.problem}"
        return Verdict(False, False, Reason.NO_DRIVERS, said)
    if not facts.drivers.pods:
        said = "there is no driver pod yet; `kubectl describe` the flow's ReplicaSet if none comes"
        return Verdict(False, False, Reason.NO_DRIVERS, said)
    return Verdict(False, False, Reason.NO_DRIVERS, "drivers are starting")


def _assignor_failed(facts: Facts) -> Verdict | None:
    homeless = sum(task.spec.driver_name == "" for task in facts.tasks)
    if not facts.assignor_problem or not homeless:
        return None
    message = f"{homeless} units have no driver: {facts.assignor_problem}"
    return Verdict(False, False, Reason.ASSIGNOR_FAILED, message)


CHECKS = (_not_built, _in_trouble, _target_taken, _stopped, _no_drivers, _assignor_failed)
