"""The chart's dashboards and alerts, answered by a Prometheus that scrapes a real flow."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import eq, ge
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet
from support.flows import FlowRun, manifest, spec
from support.groups import commit
from support.helm import CHART, render
from support.manifests import mirror_test
from support.operators import Operator, Resources
from support.prometheus import SCRAPE_S, Prometheus, filled, running_prometheus
from support.records import Load, Record, make_topic, numbered, produce, unique

from headrace.control import control
from headrace.sandbox import SandboxCluster

pytestmark = pytest.mark.usefixtures("prometheus_program", "helm_program")
Wait = Callable[..., Any]
PARTITIONS = 3
SMALL_BYTES = 2_000
SOON = {
    "lagSeconds": 10,
    "heartbeatSeconds": 10,
    "for.replicationLag": "1s",
    "for.taskFailed": "1s",
    "for.heartbeatMissing": "1s",
    "for.flowNotReady": "1s",
    "for.operatorNotLeading": "3s",
}
"""The chart's thresholds, made short."""
SILENT_S = 25
"""Long enough for an alert about the other cluster, if its heartbeats waited for the frozen one."""
WITHOUT_DATA = {
    "Progress that was not stored",
    "Restarts after errors",
    "What is wrong",
    "Requests that the API server refused",
}
"""Panels that are empty while nothing is wrong."""
ALL_THAT_FIRE = {
    "HeadraceFlowNotReady",
    "HeadraceHeartbeatMissing",
    "HeadraceMirrorTestFailed",
    "HeadraceOperatorNotLeading",
    "HeadraceReplicationLag",
    "HeadraceTaskFailed",
}
"""Alerts of the chart that the faults of this test cause."""
VERDICT = {
    "status": {
        "phase": "Finished",
        "verdict": "Failed",
        "counts": {"acknowledged": 1000, "missing": 3},
        "latencyMs": {"p50": 5, "p99": 40, "p999": 60, "max": 70},
        "completionTime": "2026-11-21T12:00:00Z",
    }
}


@dataclass
class Scene:
    """A flow of two topics under load; Prometheus watches its drivers and its operator."""

    resources: Resources
    operator: Operator
    prometheus: Prometheus
    flow: str
    narrow: str
    """The topic whose copy takes records of ``SMALL_BYTES`` only."""

    def fails(self, alert: str) -> list[dict[str, str]]:
        """Return the labels of each firing instance of an alert."""
        return [labels for labels in self.prometheus.firing() if labels["alertname"] == alert]

    def end_a_test(self) -> None:
        """End a mirror test with the verdict Failed. It waited for its flow, with no pod."""
        self.resources.apply(mirror_test("nightly", flowName="nobody"))
        patch = ("--subresource=status", "--type=merge", "-p", json.dumps(VERDICT))
        self.resources.kubectl("patch", "mtest/nightly", *patch)


@pytest.fixture
def west(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    """Start a target of the test's own, because its broker is frozen."""
    return start_cluster("west")


@pytest.fixture
def watched(
    *,
    east: SandboxCluster,
    west: SandboxCluster,
    api_server: ApiServer,
    resources: Resources,
    operator: Operator,
    kubelet: Kubelet,
    tmp_path: Path,
    wait_until: Wait,
) -> Iterator[Scene]:
    name = unique("watched")
    topic = make_topic(spec(east), name, PARTITIONS)
    narrow = make_topic(spec(east), f"{name}-narrow", 1)
    make_topic(spec(west), f"east.{narrow}", 1, **{"max.message.bytes": str(SMALL_BYTES)})
    fields = {"tasks": {"max": PARTITIONS + 2}, "drivers": {"replicas": 2}}
    resources.apply(manifest(name, east, west, topic, narrow, **fields))
    produce(spec(east), narrow, numbered(10, 1))
    commit(east, f"{name}-readers", narrow, {0: 5})
    with ExitStack() as running:
        load = Load(spec(east), topic, PARTITIONS, per_second=200, stamped_now=True)
        running.enter_context(load)
        resources.kubectl("wait", "--for=condition=Ready", f"rflow/{name}", "--timeout=300s")
        pods = wait_until(kubelet.pods, until=lambda found: len(found) == 2)
        labels = {"namespace": resources.namespace, "headrace_dev_flow": name}
        jobs = {
            "kafka/headrace-operator": [
                {"targets": [operator.address], "labels": {"namespace": "kafka", "pod": "operator"}}
            ],
            "kafka/headrace-drivers": [
                {"targets": [f"{pod.ip}:8080"], "labels": {**labels, "pod": pod.name}}
                for pod in pods
            ],
        }
        on = ("podMonitor.enabled=true", "prometheusRule.enabled=true")
        values = (*on, *(f"prometheusRule.{name}={value}" for name, value in SOON.items()))
        objects = render(*(f"--set={value}" for value in values))
        (rules,) = (one for one in objects if one["kind"] == "PrometheusRule")
        prometheus = running.enter_context(
            running_prometheus(tmp_path, jobs, rules["spec"]["groups"])
        )
        wait_until(prometheus.ready)
        wait_until(prometheus.targets, until=lambda seen: set(seen.values()) == {"up"})
        yield Scene(resources, operator, prometheus, name, narrow)


def dashboards() -> Iterator[dict[str, Any]]:
    """Yield all dashboards except a running mirror test's (see test_mirror_tester_flags)."""
    for file in sorted((CHART / "files" / "dashboards").iterdir()):
        if file.stem != "mirror-tester":
            yield json.loads(file.read_text())


def test_each_panel_is_answered(watched: Scene, wait_until: Wait) -> None:
    watched.end_a_test()
    picked = {
        "namespace": watched.resources.namespace,
        "flow": watched.flow,
        "test": "nightly",
        "job": "kafka/headrace-operator",
        "__rate_interval": f"{5 * SCRAPE_S}s",
    }

    def without_data() -> set[str]:
        return set().union(*(watched.prometheus.unanswered(page, picked) for page in dashboards()))

    wait_until(without_data, until=partial(ge, WITHOUT_DATA))


def test_a_run_without_kubernetes_answers_the_panels_of_its_flow(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Wait
) -> None:
    """Check the panels that a Prometheus fills, and the panels of the run's own page."""
    name = unique("alone")
    topic = make_topic(spec(east), name, PARTITIONS)
    commit(east, f"{name}-readers", topic, {0: 0})
    flow = manifest(name, east, west, topic, tasks={"max": 2})
    with ExitStack() as running:
        run = running.enter_context(FlowRun(tmp_path, [flow], "--drivers=2", "--metrics-port=0"))
        running.enter_context(Load(spec(east), topic, PARTITIONS, per_second=200, stamped_now=True))
        wait_until(run.settled)
        url = control.request(name, "dashboard")["url"]
        labels = {"namespace": "default", "headrace_dev_flow": name}
        target = {"targets": [urlsplit(url).netloc], "labels": labels}
        prometheus = running.enter_context(running_prometheus(tmp_path, {"headrace": [target]}, []))
        wait_until(prometheus.ready)
        page = json.loads((CHART / "files" / "dashboards" / "flow.json").read_text())
        picked = {"namespace": "default", "flow": name, "__rate_interval": f"{5 * SCRAPE_S}s"}

        def empty_in_prometheus() -> set[str]:
            return {
                panel["title"]
                for panel in page["panels"]
                for target in panel["targets"]
                if not prometheus.query(filled(target["expr"], picked))
            }

        def empty_on_its_page() -> set[str]:
            answer = urllib3.request("GET", f"{url}dashboard.json", timeout=10, retries=False)
            return {panel["title"] for panel in answer.json()["panels"] if not panel["series"]}

        expected = WITHOUT_DATA - {"Requests that the API server refused"}
        wait_until(empty_on_its_page, until=partial(eq, expected))
        # There is no API server.
        expected.add("Requests of drivers to the API server")
        wait_until(empty_in_prometheus, until=partial(eq, expected))


def test_each_alert_fires_once(
    watched: Scene, east: SandboxCluster, west: SandboxCluster, wait_until: Wait
) -> None:
    """Inject one fault after the other; each causes one alert, which names its subject."""
    began_s = time.time()
    prometheus = watched.prometheus
    flow = {"namespace": watched.resources.namespace, "flow": watched.flow}

    def fires(alert: str, **about: str) -> None:
        # If the machine pauses, another instance of the alert may fire for a moment.
        wait_until(
            lambda: watched.fails(alert),
            until=lambda seen: [about.items() <= one.items() for one in seen] == [True],
        )

    def quiet() -> None:
        wait_until(prometheus.firing, until=partial(eq, []))

    quiet()
    watched.end_a_test()
    fires("HeadraceMirrorTestFailed", namespace=watched.resources.namespace, test="nightly")
    watched.resources.kubectl("delete", "mtest/nightly")
    quiet()

    west.broker(1).freeze()
    fires("HeadraceHeartbeatMissing", **flow, cluster="west")
    fires("HeadraceReplicationLag", **flow)
    silent = f'time() - headrace_heartbeat_timestamp_seconds{{cluster="west"}} > {SILENT_S}'
    wait_until(lambda: prometheus.query(silent))
    fires("HeadraceHeartbeatMissing", **flow, cluster="west")
    west.broker(1).thaw()
    quiet()

    big = Record(0, b"big", bytes(2 * SMALL_BYTES), (), int(time.time() * 1000))
    produce(spec(east), watched.narrow, [big])
    fires("HeadraceTaskFailed", **flow)
    fires("HeadraceFlowNotReady", **flow)

    watched.operator.end()
    fires("HeadraceOperatorNotLeading", job="kafka/headrace-operator")

    def fired() -> set[str]:
        seen = prometheus.query_range('ALERTS{alertstate="firing"}', began_s, time.time())
        return {series["metric"]["alertname"] for series in seen}

    wait_until(fired, until=partial(eq, ALL_THAT_FIRE))
