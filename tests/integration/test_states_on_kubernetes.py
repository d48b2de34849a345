"""``spec.state`` of a flow in a cluster, and requests of a test that have no effect."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet
from support.flows import manifest, spec
from support.operators import Resources, give_rights, running_operator
from support.records import arrived, compare, make_topic, numbered, produce, read, unique
from support.rehearsal import headrace

from headrace.sandbox import SandboxCluster

Wait = Callable[..., Any]


@pytest.fixture
def resources(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Resources]:
    give_rights(api_server, namespace)
    with running_operator(api_server, namespace, tmp_path):
        yield Resources(api_server, namespace)


def ready(resources: Resources, name: str) -> tuple[str, str]:
    """Return status and reason of Ready."""
    condition = resources.condition(name, "Ready")
    return condition.get("status", ""), condition.get("reason", "")


def test_a_failed_over_flow_keeps_one_driver_that_watches_its_source(
    *,
    resources: Resources,
    kubelet: Kubelet,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(resources.api_server.kubeconfig))
    name = unique("watched")
    topic = make_topic(spec(east), name, 2)
    produce(spec(east), topic, numbered(20, 2))
    resources.apply(
        manifest(
            name, east, west, topic,
            heartbeats={"enabled": False},
            checkpoints={"enabled": False},
            drivers={"replicas": 2, "leaseSeconds": 60},
            sourceWatch={"intervalSeconds": 1},
        )
    )  # fmt: skip
    wait_until(lambda: arrived(spec(west), f"east.{topic}"), until=partial(eq, 20))

    def failover(*options: str) -> None:
        code, printed = headrace("failover", name, "-n", resources.namespace, *options)
        assert code == 0, printed

    def message() -> str:
        found: str = resources.condition(name, "Ready").get("message", "")
        return found

    failover("--quiet-seconds", "1")
    wait_until(message, until=lambda text: "2 partitions of east" in text)
    assert ready(resources, name) == ("True", "Stopped")
    wait_until(kubelet.pods, until=lambda there: len(there) == 1)
    held = {at: t["status"].get("driverName") for at, t in resources.tasks(name).items()}
    assert [at for at, driver in held.items() if driver] == [f"{name}-source-watch-0"]
    assert resources.flow(name)["status"]["desiredReplicas"] == 1

    produce(spec(east), topic, numbered(6, 2, first=20))
    wait_until(
        lambda: resources.condition(name, "SourceStillWritten").get("message", ""),
        until=lambda text: f"{topic}-1 has 3 new offsets" in text,
    )
    failover("--end-watch")
    wait_until(kubelet.pods, until=lambda left: not left)
    wait_until(lambda: ready(resources, name), until=partial(eq, ("True", "Stopped")))
    assert f"{name}-source-watch-0" not in resources.tasks(name)
    assert resources.condition(name, "SourceStillWritten") == {}


def test_running_paused_stopped_and_on(
    *,
    resources: Resources,
    kubelet: Kubelet,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: Wait,
) -> None:
    name = unique("states")
    topic = make_topic(spec(east), name, 2)
    copy = f"east.{topic}"

    def turn(state: str) -> None:
        patch = json.dumps({"spec": {"state": state}})
        resources.kubectl("patch", f"rflow/{name}", "--type=merge", "-p", patch)

    def phases() -> set[str]:
        return {
            task.get("status", {}).get("phase", "")
            for task in resources.tasks(name).values()
            if task["spec"]["type"] == "SourceTask"
        }

    def says(reason: str) -> None:
        wait_until(lambda: ready(resources, name), until=partial(eq, ("True", reason)))

    produce(spec(east), topic, numbered(200, 2))
    one_driver = {"replicas": 1, "leaseSeconds": 60}  # which is not lost on a busy machine
    resources.apply(
        manifest(name, east, west, topic, heartbeats={"enabled": False}, drivers=one_driver)
    )
    wait_until(lambda: arrived(spec(west), copy), until=partial(eq, 200))
    says("Running")

    def pause(*items: dict[str, str]) -> None:
        patch = json.dumps({"spec": {"pausedPartitions": items}})
        resources.kubectl("patch", f"rflow/{name}", "--type=merge", "-p", patch)

    def paused() -> str:
        message: str = resources.condition(name, "PartitionsPaused").get("message", "")
        return message

    def held() -> set[tuple[str, int]]:
        return {
            (at, task["status"]["epoch"])
            for at, task in resources.tasks(name).items()
            if task["spec"]["type"] == "SourceTask"
        }

    before = held()
    pause({"topic": topic, "partitions": "1"})
    wait_until(paused, until=lambda message: f"{topic}/1" in message)
    produce(spec(east), topic, numbered(100, 2, first=200))
    wait_until(lambda: arrived(spec(west), copy), until=partial(eq, 250))
    # Heartbeats are one more, where the source has them. A task's partitions count once it reports.
    wait_until(
        lambda: resources.condition(name, "Ready")["message"],
        until=partial(re.search, r"1 of [23] partitions are paused"),
    )
    pause()
    wait_until(lambda: arrived(spec(west), copy), until=partial(eq, 300))
    wait_until(paused, until=lambda message: not message)
    assert held() == before, "no task was restarted"

    turn("Paused")
    wait_until(phases, until=partial(eq, {"Paused"}))
    wait_until(
        lambda: resources.condition(name, "Ready").get("message", ""),
        until=lambda message: "paused" in message,
    )
    assert ready(resources, name) == ("True", "Running")
    assert len(kubelet.pods()) == 1
    produce(spec(east), topic, numbered(100, 2, first=300))

    turn("Stopped")
    says("Stopped")
    wait_until(kubelet.pods, until=lambda left: not left)
    assert resources.get("deployment", f"{name}-driver")["spec"]["replicas"] == 0
    wait_until(
        lambda: any(t.get("status", {}).get("driverName") for t in resources.tasks(name).values()),
        until=partial(eq, False),
    )
    # Nothing was copied since it paused.
    assert arrived(spec(west), copy) == 300

    turn("Running")
    says("Running")
    wait_until(lambda: arrived(spec(west), copy), until=partial(eq, 400))
    found = compare(read(spec(east), topic), read(spec(west), copy))
    assert (found.missing, found.repeated, found.in_order) == (0, 0, True)


def test_figures_of_a_frozen_driver_are_unknown(
    *,
    resources: Resources,
    kubelet: Kubelet,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: Wait,
) -> None:
    name = unique("frozen")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(10, 1))
    drivers = {"replicas": 1, "leaseSeconds": 3}
    resources.apply(
        manifest(name, east, west, topic, heartbeats={"enabled": False}, drivers=drivers)
    )
    wait_until(lambda: ready(resources, name), until=partial(eq, ("True", "Running")))
    (pod,) = kubelet.pods()
    pod.freeze()
    status = wait_until(
        lambda: resources.get("replicationflow", name)["status"],
        until=lambda seen: seen.get("lostDrivers"),
    )
    pod.thaw()
    assert status["lostDrivers"] == [pod.name]
    assert (status["tasks"]["running"], status["readyReplicas"]) == (0, 0)
    assert "lag" not in status
    assert {one["type"]: one["reason"] for one in status["conditions"]}["Ready"] == "NoDrivers"
    wait_until(lambda: ready(resources, name), until=partial(eq, ("True", "Running")))
