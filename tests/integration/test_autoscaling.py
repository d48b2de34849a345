"""Drivers by lag: Kubernetes' own HorizontalPodAutoscaler, the operator's metric, real drivers.

A server of the tests replaces Prometheus and an adapter (or KEDA), which a cluster has in between.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import OwnApiServer
from support.flows import manifest, spec
from support.metrics_api import serving_metrics, values
from support.operators import Resources, give_rights, running_operator
from support.records import compare, make_topic, numbered, produce, read, unique

from headrace.sandbox import SandboxCluster

Wait = Callable[..., Any]
EXAMPLES = Path(__file__).parents[2] / "examples" / "autoscaling"
LAG = "headrace_flow_lag_records"
PARTITIONS, LEAST, MOST = 6, 1, 3
BACKLOG, A_DRIVER = 30_000, 8_000
"""Records of the backlog, and records per requested driver: it requests more than the maximum."""
CALM_S = 5
"""Seconds of small lag before drivers are removed: then all of them in one step."""


@dataclass(frozen=True)
class Sample:
    """State at a moment."""

    at_s: float
    lag: float
    desired: int
    ready: int
    claims: int
    """Claims of all units after their creation."""

    @property
    def figures(self) -> tuple[float, int, int, int]:
        """All figures except the time."""
        return self.lag, self.desired, self.ready, self.claims

    def __str__(self) -> str:
        return (
            f"{self.at_s:5.1f} s: {self.lag:6.0f} behind, {self.ready}/{self.desired} drivers, "
            f"{self.claims} claims"
        )


class Fleet:
    """A flow that is scaled."""

    def __init__(self, resources: Resources, name: str, scrape: Callable[[], str]) -> None:
        self.resources, self.name, self._scrape = resources, name, scrape
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    def lag(self) -> float:
        """Return the lag by the metric."""
        return sum(
            values(self._scrape(), self.resources.namespace, LAG, {"flow": self.name}), start=0.0
        )

    def epochs(self) -> dict[str, int]:
        """Return how often each unit was claimed."""
        tasks = self.resources.tasks(self.name)
        return {name: task.get("status", {}).get("epoch", 0) for name, task in tasks.items()}

    def table(self) -> str:
        """Return the samples as CSV, starting at time zero."""
        first = self.samples[0]
        rows = (
            f"{one.at_s - first.at_s:.1f},{one.lag:.0f},{one.desired},{one.ready},"
            f"{one.claims - first.claims}\n"
            for one in self.samples
        )
        return f"at_s,lag,desired,ready,claims\n{''.join(rows)}"

    def settled(self, drivers: int) -> bool:
        """Return whether that number of drivers runs all units; each call takes a sample."""
        flow, tasks = self.resources.flow(self.name), self.resources.tasks(self.name).values()
        status = flow.get("status", {})
        sample = Sample(
            time.monotonic() - self._began,
            self.lag(),
            flow["spec"]["drivers"].get("replicas", 0),
            status.get("readyReplicas", 0),
            sum(self.epochs().values()),
        )
        last = self.samples[-1] if self.samples else None
        if last is None or last.figures != sample.figures:
            self.samples.append(sample)
            print(sample)
        return (
            sample.desired == sample.ready == status.get("replicas") == drivers
            and all(_runs(task) for task in tasks)
            and len({task["status"]["driverName"] for task in tasks}) == drivers
        )


def _runs(task: dict[str, Any]) -> bool:
    status = task.get("status", {})
    wanted: str = task["spec"].get("driverName", "")
    return bool(wanted) and (status.get("phase"), status.get("driverName")) == ("Running", wanted)


def autoscaler(flow: str) -> dict[str, Any]:
    """Return the example for a smaller fleet, without its long stabilisation windows."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "hpa.yaml").read_text())
    found["metadata"]["name"] = found["spec"]["scaleTargetRef"]["name"] = flow
    found["spec"] |= {"minReplicas": LEAST, "maxReplicas": MOST}
    (metric,) = found["spec"]["metrics"]
    metric["external"]["metric"]["selector"]["matchLabels"]["flow"] = flow
    metric["external"]["target"]["averageValue"] = str(A_DRIVER)
    at_once = [{"type": "Pods", "value": MOST, "periodSeconds": 1}]
    found["spec"]["behavior"] = {
        direction: {"stabilizationWindowSeconds": window_s, "policies": at_once}
        for direction, window_s in (("scaleUp", 0), ("scaleDown", CALM_S))
    }
    return found


@pytest.mark.long
@pytest.mark.usefixtures("kubelet")
def test_a_backlog_scales_the_drivers_to_the_maximum_and_back(
    *,
    own_api_server: OwnApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    resources, name = Resources(own_api_server, namespace), unique("fleet")
    topic = make_topic(spec(east), name, PARTITIONS)
    produce(spec(east), topic, numbered(BACKLOG, PARTITIONS))
    give_rights(own_api_server, namespace)
    with running_operator(own_api_server, namespace, tmp_path) as operator:
        wait_until(lambda: "port=" in operator.log)
        resources.apply(
            manifest(
                name, east, west, topic,
                heartbeats={"enabled": False},
                tasks={"max": PARTITIONS},
                drivers={"replicas": LEAST, "leaseSeconds": 60},
                pausedPartitions=[{"topic": topic}],
            )
        )  # fmt: skip
        scrape = partial(operator.get, "/metrics")
        fleet = Fleet(resources, name, scrape)
        wait_until(lambda: fleet.settled(LEAST))
        wait_until(fleet.lag, until=lambda lag: lag > A_DRIVER * (MOST - 1))
        with serving_metrics(own_api_server, namespace, tmp_path / "metrics", scrape):
            before = fleet.epochs()
            resources.apply(autoscaler(name))
            wait_until(lambda: fleet.settled(MOST))
            moved_up = {unit: epoch - before[unit] for unit, epoch in fleet.epochs().items()}

            before = fleet.epochs()
            patch = '{"spec": {"pausedPartitions": []}}'
            resources.kubectl("patch", f"rflow/{name}", "--type=merge", "-p", patch)
            wait_until(lambda: fleet.settled(LEAST))
            moved_down = {unit: epoch - before[unit] for unit, epoch in fleet.epochs().items()}
        found = wait_until(
            lambda: compare(read(spec(east), topic), read(spec(west), f"east.{topic}")),
            until=lambda seen: seen.missing == 0,
        )
    if (path := os.environ.get("HEADRACE_SAMPLES")) is not None:  # for docs/autoscaling_picture.py
        Path(path).write_text(fleet.table())
    scalings = Counter(
        now.desired > before.desired
        for before, now in pairwise(fleet.samples)
        if now.desired != before.desired
    )
    print(f"moves up {moved_up}\nmoves down {moved_down}\n0 missing, {found.repeated} repeated")
    assert found.in_order
    assert 1 <= max(moved_up.values()) <= scalings[True]
    assert 1 <= max(moved_down.values()) <= scalings[False]
    assert max(sample.desired for sample in fleet.samples) == MOST
