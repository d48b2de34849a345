"""A flow whose drivers run in pods, as a user of kubectl sees it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cluster.kubectl import KubectlError
from cluster.real import Cluster
from e2e.stage import OPERATORS

from headrace.api.labels import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL, MOVE_ANNOTATION
from headrace.api.partitions import parse_ranges

HTTP_PORT = 8080


@dataclass(frozen=True)
class Unit:
    """A connector or a task."""

    wanted: str
    """The driver that shall have it."""
    holder: str
    """The one that has."""
    phase: str
    epoch: int
    """Number of claims."""


class FlowInPods:
    """A flow in pods."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def kubectl(self, *arguments: str, input: Any = None) -> str:
        """Run kubectl in the flow's namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, input=input)

    def get(self, *what: str) -> Any:
        """Return objects of the flow's namespace."""
        return self.cluster.get("-n", self.namespace, *what)

    def units(self) -> dict[str, Unit]:
        """Return all units, by name."""
        return {one["metadata"]["name"]: _unit(one) for one in self._tasks()}

    def epochs(self) -> dict[str, int]:
        """Return how often each unit was claimed."""
        return {name: unit.epoch for name, unit in self.units().items()}

    def describe(self) -> str:
        """Return the state of the flow, and its latest events and logs."""
        mine, operators = ("-n", self.namespace), ("-n", OPERATORS)
        annotations = "custom-columns=NAME:.metadata.name,ANNOTATIONS:.metadata.annotations"
        log = ("-l", "app.kubernetes.io/component=operator", "--prefix", "--since=5m", "--tail=80")
        answers = []
        for question in (
            (*mine, "get", "rflow,rtask,mtest,pods", "-o", "wide"),
            (*mine, "get", "rtask", "-o", annotations),
            (*mine, "get", "events", "--sort-by=.metadata.creationTimestamp"),
            (*operators, "get", "pods,leases", "-o", "wide"),
            (*operators, "logs", *log),
            (*operators, "logs", *log, "--previous"),
        ):
            try:
                answers.append(self.cluster.kubectl(*question))
            except KubectlError as error:
                answers.append(str(error))
        return "\n".join(answers)

    def pods(self) -> dict[str, Any]:
        """Return driver pods that are neither being deleted nor ended, by name."""
        of_drivers = f"{FLOW_LABEL}={self.name},{COMPONENT_LABEL}={DRIVER_COMPONENT}"
        found = self.cluster.pods(self.namespace, of_drivers)
        return {
            name: pod
            for name, pod in found.items()
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] not in {"Succeeded", "Failed"}
        }

    def container(self, pod: str) -> Any:
        """Return the container status of a driver's pod."""
        (status,) = self.pods()[pod]["status"]["containerStatuses"]
        return status

    def driver(self) -> str:
        """Return a driver that has units."""
        return min(unit.holder for unit in self.units().values() if unit.holder)

    def settled(self, drivers: int) -> bool:
        """Return whether all units run as assigned, on as many drivers as there are pods."""
        units, pods = self.units().values(), self.pods()
        holders = {unit.holder for unit in units if _runs(unit)}
        return all(map(_runs, units)) and len(holders) == drivers and holders == pods.keys()

    def runs_without(self, driver: str) -> bool:
        """Return whether all units run, and none on this driver."""
        return all(_runs(unit) and unit.holder != driver for unit in self.units().values())

    def partitions(self, topic: str) -> dict[str, int]:
        """Return the number of a topic's partitions that each source task copies, by name."""
        return {
            one["metadata"]["name"]: len(parse_ranges(part["partitions"]))
            for one in self._tasks()
            for part in one["spec"].get("partitions", ())
            if part["topic"] == topic
        }

    def figures(self, *metrics: str) -> list[dict[str, float]]:
        """Return the value of each metric by task, all from one moment."""
        here = f"/api/v1/namespaces/{self.namespace}/pods"
        page = "".join(
            self.kubectl("get", "--raw", f"{here}/{pod}:{HTTP_PORT}/proxy/metrics")
            for pod in self.pods()
        )
        return [
            {
                task: float(value)
                for task, value in re.findall(
                    rf'^{metric}{{.*\btask="([^"]+)".*}} (\S+)$', page, re.MULTILINE
                )
            }
            for metric in metrics
        ]

    def scale(self, drivers: int) -> None:
        """Scale the drivers by ``kubectl scale``."""
        self.kubectl("scale", f"rflow/{self.name}", f"--replicas={drivers}")

    def wish(self, unit: str, driver: str) -> None:
        """Request that a unit moves to a driver."""
        self.kubectl("annotate", "--overwrite", f"rtask/{unit}", f"{MOVE_ANNOTATION}={driver}")

    @contextmanager
    def without_balance(self) -> Iterator[None]:
        """Suspend moves for balance, which a change of rates may cause at any time."""
        self.patch({"spec": {"tasks": {"movementBudget": 0}}})
        yield
        self.patch({"spec": {"tasks": {"movementBudget": None}}})

    def evict(self, pod: str) -> None:
        """Evict a pod as a drain of its node does.

        Raises KubectlError if no driver may be missing now.
        """
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", input=eviction)

    def patch(self, patch: Any) -> None:
        """Apply a merge patch as ``kubectl patch`` does."""
        self.kubectl(
            "patch",
            f"rflow/{self.name}",
            "--type=merge",
            "--patch-file=/dev/stdin",
            input=patch,
        )

    def _tasks(self) -> list[Any]:
        found: list[Any] = self.get("rtask", "-l", f"{FLOW_LABEL}={self.name}")["items"]
        return found


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
