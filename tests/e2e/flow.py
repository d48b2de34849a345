"""A flow whose drivers run in pods, as a person with kubectl sees it."""

import re
from dataclasses import dataclass
from typing import Any

from cluster.real import Cluster

from headrace.api.labels import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL, MOVE_ANNOTATION

HTTP_PORT = 8080
_LAG = re.compile(r"^headrace_task_lag_records{[^}]*} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """A connector or a task."""

    wanted: str
    """The driver that shall have it."""
    holder: str
    """The one that has."""
    phase: str
    epoch: int
    """How often it was claimed."""


class FlowInPods:
    """One flow."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def kubectl(self, *arguments: str) -> str:
        """In the flow's namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def get(self, *what: str) -> Any:
        """In the flow's namespace."""
        return self.cluster.get("-n", self.namespace, *what)

    def units(self) -> dict[str, Unit]:
        """All of them, by name."""
        found = self.get("rtask", "-l", f"{FLOW_LABEL}={self.name}")["items"]
        return {one["metadata"]["name"]: _unit(one) for one in found}

    def epochs(self) -> dict[str, int]:
        """How often each unit was claimed."""
        return {name: unit.epoch for name, unit in self.units().items()}

    def pods(self) -> dict[str, Any]:
        """Driver pods that were not told to go, by name."""
        of_drivers = f"{FLOW_LABEL}={self.name},{COMPONENT_LABEL}={DRIVER_COMPONENT}"
        found = self.cluster.pods(self.namespace, of_drivers)
        return {
            name: pod for name, pod in found.items() if "deletionTimestamp" not in pod["metadata"]
        }

    def driver(self) -> str:
        """One that has units."""
        return min(unit.holder for unit in self.units().values())

    def settled(self, drivers: int) -> bool:
        """Whether all units run where they shall, on as many drivers as there are pods."""
        units, pods = self.units().values(), self.pods()
        holders = {unit.holder for unit in units if _runs(unit)}
        return all(map(_runs, units)) and len(holders) == drivers and holders == pods.keys()

    def runs_without(self, driver: str) -> bool:
        """Whether all units run, and none on this driver."""
        return all(_runs(unit) and unit.holder != driver for unit in self.units().values())

    def lag(self) -> float:
        """Records that the target does not have yet, in the words of the drivers' metrics."""
        here = f"/api/v1/namespaces/{self.namespace}/pods"
        pages = [
            self.kubectl("get", "--raw", f"{here}/{pod}:{HTTP_PORT}/proxy/metrics")
            for pod in self.pods()
        ]
        return sum(float(records) for page in pages for records in _LAG.findall(page))

    def scale(self, drivers: int) -> None:
        """``kubectl scale``."""
        self.kubectl("scale", f"rflow/{self.name}", f"--replicas={drivers}")

    def wish(self, unit: str, driver: str) -> None:
        """Have a unit moved."""
        self.kubectl("annotate", "--overwrite", f"rtask/{unit}", f"{MOVE_ANNOTATION}={driver}")


def _unit(object: Any) -> Unit:
    status = object.get("status", {})
    return Unit(
        object["spec"].get("driverName", ""),
        status.get("driverName", ""),
        status.get("phase", ""),
        status.get("epoch", 0),
    )


def _runs(unit: Unit) -> bool:
    return unit.phase == "Running" and unit.holder == unit.wanted
