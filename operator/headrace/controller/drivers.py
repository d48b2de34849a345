"""Drivers of a flow, from their pods and Leases.

The rules for a driver that joins, leaves, restarts, rolls or stops renewing. In words they stand in
docs/rebalancing.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from headrace.assign import DriverName
from headrace.controller.resources.deployment import POD_TEMPLATE_HASH, TEMPLATE, ZONE
from headrace.k8s import Object


@dataclass(frozen=True)
class DriverPod:
    """A driver pod, as far as it matters here."""

    name: DriverName
    template: str
    """Hash of the template it was made from, as the operator wrote it."""
    replica_set: str = ""
    """Hash of that template with what others added, which names its ReplicaSet."""
    terminating: bool = False
    """Whether it terminates: scaled down, rolled, evicted."""
    ended: bool = False
    """Whether all its containers ended and are not restarted."""
    rack: str | None = None
    problem: str = ""
    """Why it does not run, in the words of scheduler or kubelet; empty when it runs."""
    running_since: datetime | None = None
    """When its containers began to run, by its node's clock."""


@dataclass(frozen=True)
class DriverLease:
    """State of a driver's Lease, according to the watch."""

    incarnation: str = ""
    """Incarnation of the driver that holds it; empty without a Lease."""
    renewed: bool = False
    """Whether it was renewed while observed: the holder of one that never was may be dead."""
    expired: bool = False
    """Whether it was not renewed, or missing, for its whole duration."""


_NONE = DriverLease()


@dataclass(frozen=True)
class FlowDrivers:
    """The drivers of a flow."""

    schedulable: tuple[DriverPod, ...]
    """May get units."""
    cordoned: frozenset[DriverName]
    """Keep the units that they have, and get none."""
    rolling: bool
    """Whether pods of an older template exist; no unit is moved for balance during that time."""
    pods: Mapping[DriverName, DriverPod]
    leases: Mapping[DriverName, DriverLease]

    @property
    def alive(self) -> int:
        """How many hold their Lease."""
        return sum(
            lease.incarnation != "" and not lease.expired
            for name in self.pods
            if (lease := self.leases.get(name, _NONE))
        )

    @property
    def silent(self) -> bool:
        """Whether there are driver pods, and none holds its Lease."""
        return bool(self.pods) and not self.alive

    @property
    def wait_to_take(self) -> bool:
        """Whether there are drivers, and none may get units yet."""
        return self.alive > 0 and not self.schedulable

    def is_lost(self, driver: DriverName, incarnation: str) -> bool:
        """Return whether that incarnation of a driver is lost.

        It is lost if its pod was deleted or has ended, another incarnation holds the Lease, or the
        Lease expired.
        """
        pod, lease = self.pods.get(driver), self.leases.get(driver, _NONE)
        if pod is None or pod.ended:
            return True
        return lease.expired or lease.incarnation not in ("", incarnation)


def is_ambiguous(pods: Iterable[DriverPod], newest: str) -> bool:
    """Return whether the operator's own hash does not identify the newest pods.

    This happens if another manager changed the template, as ``kubectl rollout restart`` does.
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
        newest_replica_set: ReplicaSet of the newest pods of that template; empty if all pods are
            alike.
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
    # While there is none of the newest template, an old one takes what would be unassigned.
    schedulable = [pod for pod in sure if is_newest(pod)] or sure
    names = {pod.name for pod in schedulable}
    return FlowDrivers(
        schedulable=tuple(schedulable),
        cordoned=frozenset(pod.name for pod in staying if pod.name not in names),
        rolling=any(not is_newest(pod) and not pod.ended for pod in there.values()),
        pods=there,
        leases=leases,
    )


_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons to wait that pass by themselves."""


def driver_pod(pod: Object) -> DriverPod:
    """Return a driver from its pod."""
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
        running_since=max(_starts(status), default=None),
    )


def _starts(status: Object) -> Iterator[datetime]:
    """Yield the start of each running container; Kubernetes writes an unknown time as null."""
    for container in status.get("containerStatuses") or ():
        running = (container.get("state") or {}).get("running") or {}
        if started := running.get("startedAt"):
            yield datetime.fromisoformat(started)


def _problems(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"cannot be scheduled: {condition.get('message', condition.get('reason', ''))}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in _STARTING:
            ended = (container.get("lastState") or {}).get("terminated") or {}
            code = f"; it ended with exit code {ended['exitCode']}" if "exitCode" in ended else ""
            yield f"{reason}: {waiting.get('message', 'see its log')}{code}"
