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
    """Whether all its containers ended for good."""
    rack: str | None = None
    problem: str = ""
    """Why it does not run, in the words of scheduler or kubelet; empty when it runs."""
    running_since: datetime | None = None
    """When its containers began to run, by its node's clock."""


@dataclass(frozen=True)
class DriverLease:
    """What the watch over Leases knows of one driver."""

    incarnation: str = ""
    """Which incarnation of the driver holds it; empty without a Lease."""
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
    """Whether pods of an older template are there: nothing moves for balance meanwhile."""
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
        """Whether that incarnation of a driver is lost: its pod is gone or ended, another one holds
        the Lease, or the Lease expired."""
        pod, lease = self.pods.get(driver), self.leases.get(driver, _NONE)
        if pod is None or pod.ended:
            return True
        return lease.expired or lease.incarnation not in ("", incarnation)


def is_ambiguous(pods: Iterable[DriverPod], newest: str) -> bool:
    """Whether the operator's own hash does not tell which pods are the newest: somebody else
    changed the template, as ``kubectl rollout restart`` does."""
    return len({pod.replica_set for pod in pods if pod.template == newest}) > 1


def drivers_of(
    pods: Iterable[DriverPod],
    newest: str,
    leases: Mapping[DriverName, DriverLease],
    newest_replica_set: str = "",
) -> FlowDrivers:
    """The drivers of a flow; ``newest`` is the hash of the template that its pods shall have, and
    ``newest_replica_set`` tells those of that template apart (empty: they are all alike)."""

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
    """A driver pod."""
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
    """Of the containers that run; Kubernetes writes a time that it does not know as null."""
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
