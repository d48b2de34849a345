"""A flow in pods at one moment, and whether it has recovered. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.api import ReplicationFlow, ReplicationTask, TaskPhase
from headrace.control.flow_actions import target_driver
from headrace.errors import InvalidSpec
from headrace.k8s import Object

_DRIVER_CONTAINER = "driver"
_MARGIN_S = 3.0
"""Between the length of a freeze and both of its bounds: signals and polls take a moment."""


@dataclass(frozen=True)
class FlowSnapshot:
    """A flow, its units and its drivers' pods."""

    flow: ReplicationFlow
    units: Collection[ReplicationTask]
    pods: Mapping[str, Object]
    """Of the drivers, by name; those that are being deleted, too."""

    def victim(self) -> Object:
        """The pod of the driver with most source tasks; raises ``InvalidSpec`` without one."""
        return self.pods[target_driver(self.units, self.remaining, self.flow.metadata.name)]

    @property
    def remaining(self) -> set[str]:
        """Pods that are not being deleted."""
        return {n for n, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]}

    def epochs(self, driver: str) -> dict[str, int]:
        """The epoch of each unit that a driver owns."""
        return {
            unit.metadata.name: unit.status.epoch
            for unit in self.units
            if unit.status.driver_name == driver
        }

    def claimed_again(self, lost: Mapping[str, int]) -> bool:
        """Whether each of these units that still exists runs, and was claimed since."""
        return all(
            unit.status.phase is TaskPhase.RUNNING and unit.status.epoch > lost[unit.metadata.name]
            for unit in self.units
            if unit.metadata.name in lost
        )

    @property
    def is_stable(self) -> bool:
        """Whether every unit runs on the driver that it is assigned to, and that exists."""
        return all(
            unit.status.phase is TaskPhase.RUNNING
            and unit.status.driver_name == unit.spec.driver_name
            and unit.status.driver_name in self.pods
            for unit in self.units
        )

    def settled(self, generation: int) -> bool:
        """Whether that generation of the spec is reached: as many drivers, all of them ready, and
        every unit runs on the one that it is assigned to."""
        wanted, status = self.flow.spec.drivers.replicas, self.flow.status
        return (
            status is not None
            and (status.observed_generation or 0) >= generation
            and status.ready_replicas == wanted
            and self.pods.keys() == self.remaining
            and len(self.pods) == wanted
            and all(map(_is_ready, self.pods.values()))
            and self.is_stable
        )


def freeze_s(lease_s: int, pod: Object) -> float:
    """For how many seconds to freeze a driver: halfway between the durations of its Lease and of
    its liveness probe. A shorter freeze has no effect; in a longer one the kubelet kills it.

    Raises ``InvalidSpec`` when there is too little between them.
    """
    probe = driver_container(pod)["livenessProbe"]
    patience_s = float(probe["periodSeconds"] * probe["failureThreshold"])
    if patience_s - lease_s < 2 * _MARGIN_S:
        raise InvalidSpec(
            f"a driver has to be frozen for longer than its Lease of {lease_s} s, and shorter than "
            f"its kubelet waits, {patience_s:.0f} s: lower spec.drivers.leaseSeconds of the flow "
            f"to {patience_s - 2 * _MARGIN_S:.0f} or less"
        )
    return (lease_s + patience_s) / 2


def driver_container(pod: Object) -> Object:
    """The container of a driver's pod that is the driver."""
    containers: list[Object] = pod["spec"]["containers"]
    return next(one for one in containers if one["name"] == _DRIVER_CONTAINER)


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
