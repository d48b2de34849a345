"""Drivers of a flow, derived from their pods and Leases.

This module has the rules for drivers that join, leave, restart, are replaced or stop renewing their
Leases. docs/rebalancing.md describes them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from headrace.assign import DriverName
from headrace.controller.resources.deployment import POD_TEMPLATE_HASH, TEMPLATE, ZONE
from headrace.k8s import Object


@dataclass(frozen=True)
class DriverPod:
    """Facts about a driver pod."""

    name: DriverName
    template: str
    """Hash of the pod's template, which the operator wrote as a label."""
    replica_set: str = ""
    """Label ``pod-template-hash``, which identifies the pod's ReplicaSet.

    It is a hash of the template including changes by other managers.
    """
    terminating: bool = False
    """True if the pod is being deleted, for example by a scale-down, a roll-out or an eviction."""
    ended: bool = False
    """True if all containers have ended and are not restarted."""
    rack: str | None = None
    problem: str = ""
    """Reason why the pod does not run, from the scheduler or kubelet. Empty if it runs."""
    not_ready: str = ""
    """Reason why the pod is not ready. Empty if it is ready."""
    created: datetime | None = None
    """Creation time, by the API server's clock."""
    running_since: datetime | None = None
    """Start time of the container that started last, by the node's clock. None if no container
    runs."""


@dataclass(frozen=True)
class DriverLease:
    """State of a driver's Lease, according to its watch."""

    incarnation: str = ""
    """Incarnation of the driver that holds the Lease, or empty without a Lease."""
    renewed: bool = False
    """True if a renewal was observed. A Lease that was never renewed may be of a dead driver."""
    expired: bool = False
    """True if the Lease was missing, or not renewed, for its whole duration."""


_NONE = DriverLease()


@dataclass(frozen=True)
class FlowDrivers:
    """Drivers of a flow, and the units that they may get."""

    schedulable: tuple[DriverPod, ...]
    """Drivers that may get units."""
    cordoned: frozenset[DriverName]
    """Drivers that keep their units and get no others."""
    rolling: bool
    """True if pods of an older template exist. No unit is moved for balance during that time."""
    newest: frozenset[DriverName]
    """Drivers of the newest template."""
    pods: Mapping[DriverName, DriverPod]
    leases: Mapping[DriverName, DriverLease]

    @property
    def alive(self) -> int:
        """Number of drivers that hold their Lease."""
        return sum(
            lease.incarnation != "" and not lease.expired
            for name in self.pods
            if (lease := self.leases.get(name, _NONE))
        )

    @property
    def silent(self) -> bool:
        """True if there are driver pods, and none holds its Lease."""
        return bool(self.pods) and not self.alive

    @property
    def none_schedulable(self) -> bool:
        """True if there are live drivers, and none may get units yet."""
        return self.alive > 0 and not self.schedulable

    def is_lost(self, driver: DriverName, incarnation: str) -> bool:
        """Return True if that incarnation of a driver is lost.

        It is lost if its pod was deleted or has ended, if another incarnation holds the Lease, or
        if the Lease has expired.
        """
        pod, lease = self.pods.get(driver), self.leases.get(driver, _NONE)
        if pod is None or pod.ended:
            return True
        return lease.expired or lease.incarnation not in ("", incarnation)


def is_ambiguous(pods: Iterable[DriverPod], newest: str) -> bool:
    """Return True if the operator's own hash does not identify the newest pods.

    This happens if another manager changes the template, as ``kubectl rollout restart`` does.
    """
    return len({pod.replica_set for pod in pods if pod.template == newest}) > 1


def drivers_of(
    pods: Iterable[DriverPod],
    newest: str,
    leases: Mapping[DriverName, DriverLease],
    newest_replica_set: str = "",
) -> FlowDrivers:
    """Return the drivers of a flow.

    Args:
        pods: Pods of the flow.
        newest: Hash of the template that its pods should have.
        leases: Leases by driver.
        newest_replica_set: Hash of the newest ReplicaSet of that template, or empty if the template
            has only one.
    """

    def is_newest(pod: DriverPod) -> bool:
        return pod.template == newest and newest_replica_set in ("", pod.replica_set)

    there = {pod.name: pod for pod in pods}
    staying = [
        pod
        for pod in there.values()
        if not pod.terminating and not pod.ended and not leases.get(pod.name, _NONE).expired
    ]
    sure = [pod for pod in staying if leases.get(pod.name, _NONE).renewed]
    # If there is no driver of the newest template, drivers of an older one get the units.
    schedulable = [pod for pod in sure if is_newest(pod)] or sure
    names = {pod.name for pod in schedulable}
    return FlowDrivers(
        schedulable=tuple(schedulable),
        cordoned=frozenset(pod.name for pod in staying if pod.name not in names),
        rolling=any(not is_newest(pod) and not pod.ended for pod in there.values()),
        newest=frozenset(pod.name for pod in there.values() if is_newest(pod)),
        pods=there,
        leases=leases,
    )


_READY_TIMEOUT_S = 120.0
"""Time from the creation of a pod until it must be ready, in seconds.

It usually takes a few seconds. A large image, or a new node, may take longer than that.
"""


def stuck_rollout(drivers: FlowDrivers, now: datetime, *, refused: str, overdue: str) -> str:
    """Return the reason why a roll-out is stuck, or an empty string.

    Args:
        drivers: Drivers of the flow.
        now: Current time.
        refused: Reason for which the API server rejects further pods, or empty.
        overdue: Message of a Deployment that has made no progress for its deadline, or empty.
    """
    if not (drivers.rolling or overdue):
        return ""
    pods = [drivers.pods[name] for name in sorted(drivers.newest)]
    for pod in (pod for pod in pods if pod.not_ready and not pod.terminating and not pod.ended):
        late = pod.created is None or (now - pod.created).total_seconds() > _READY_TIMEOUT_S
        if overdue or late:
            return f"pod {pod.name}: {pod.not_ready}"
    return f"the API server takes no more pods: {refused}" if refused else overdue


_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons for waiting that do not indicate a problem."""


def driver_pod(pod: Object) -> DriverPod:
    """Return the facts about a driver pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    return DriverPod(
        name=metadata["name"],
        template=labels.get(TEMPLATE, ""),
        replica_set=labels.get(POD_TEMPLATE_HASH, ""),
        terminating="deletionTimestamp" in metadata,
        ended=status.get("phase") in ("Succeeded", "Failed"),
        rack=labels.get(ZONE),
        problem=next(_problems(status), ""),
        not_ready=_not_ready(status),
        created=_created(metadata),
        running_since=max(_starts(status), default=None),
    )


def _starts(status: Object) -> Iterator[datetime]:
    """Yield the start time of each running container. Kubernetes writes an unknown time as null."""
    for container in status.get("containerStatuses") or ():
        running = (container.get("state") or {}).get("running") or {}
        if started := running.get("startedAt"):
            yield datetime.fromisoformat(started)


def _created(metadata: Object) -> datetime | None:
    created = metadata.get("creationTimestamp")
    return datetime.fromisoformat(created) if created else None


def _not_ready(status: Object) -> str:
    conditions = status.get("conditions") or ()
    ready: Object = next((one for one in conditions if one["type"] == "Ready"), {})
    if ready.get("status") == "True":
        return ""
    return next(_problems(status), "") or ready.get("message") or "it is not ready"


def _problems(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"cannot be scheduled: {condition.get('message', condition.get('reason', ''))}"
    containers = chain(
        status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    )
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in _STARTING:
            ended = (container.get("lastState") or {}).get("terminated") or {}
            code = f"; it ended with exit code {ended['exitCode']}" if "exitCode" in ended else ""
            name = container.get("name", "driver")
            of = "" if name == "driver" else f"container {name}: "
            yield f"{of}{reason}: {waiting.get('message', 'see its log')}{code}"
