"""An upgrade, a restart and a webhook that fails, in a namespace in which little is allowed."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from cluster.kubectl import KubectlError
from cluster.real import Cluster
from e2e.flow import FlowInPods
from e2e.load import load_pod
from e2e.restrictions import policies, quota
from e2e.stage import BROKERS, KAFKA_PORT, in_operator, install_release, kafka_cluster
from support.manifests import flow
from support.webhooks import failing_webhook

from headrace import __version__
from headrace.api import HEARTBEATS
from headrace.api.labels import FLOW_LABEL

Wait = Callable[..., Any]
NOW, NEXT = f"headrace:{__version__}", "headrace:next"
CONTROLLER_PORT = 9093
LOAD = "steady-load"
TURNS = ("urgent", "first", "second")
"""The flows in the order in which they roll out: by priority, then by name."""
ROLLED_S = 240.0

pytestmark = pytest.mark.usefixtures("brokers", "release")


def flows(namespace: str) -> list[dict[str, Any]]:
    """Apply three flows of one driver, each with a topic of its own."""
    limits = {"limits": {"cpu": "1", "memory": "512Mi"}}
    return [
        flow(
            name,
            source=kafka_cluster("east"),
            target=kafka_cluster("west"),
            topics={"include": [topic(namespace, name)]},
            heartbeats={"enabled": False},
            checkpoints={"enabled": False},
            drivers={
                "replicas": 1,
                "resources": limits,
                "rolloutPriority": 1 if name == "urgent" else 0,
            },
        )
        for name in TURNS
    ]


def topic(namespace: str, name: str) -> str:
    """Return the topic that a flow copies."""
    return f"{namespace}-{name}"


@pytest.fixture
def load(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Run a load on the topics of all flows."""
    source, target = (kafka_cluster(alias)["bootstrapServers"] for alias in ("east", "west"))
    topics = [topic(namespace, name) for name in TURNS]
    pod = ("-n", BROKERS, f"pod/{LOAD}")
    cluster.kubectl("delete", "--ignore-not-found", "--now", *pod)  # of an interrupted run
    cluster.apply(load_pod(LOAD, NOW, source, target, topics), namespace=BROKERS)
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=300s", *pod)
    yield
    cluster.kubectl("delete", "--now", *pod)


@pytest.mark.timeout(900)
def test_an_upgrade_rolls_out_flow_by_flow_in_a_restricted_namespace(
    cluster: Cluster, namespace: str, load: None, wait_until: Wait
) -> None:
    bring_next_image(cluster)
    without_heartbeats(cluster)
    mirrors = [FlowInPods(cluster, namespace, name) for name in TURNS]
    limits = quota(**{"limits.cpu": "5", "limits.memory": "2560Mi", "pods": "5"})
    cluster.apply(limits, *policies(cluster), namespace=namespace)
    with cluster.enforcing_policies():
        cluster.apply(*flows(namespace), namespace=namespace)
        for mirror in mirrors:
            mirror.kubectl(
                "wait", f"rflow/{mirror.name}", "--for=condition=Ready", "--timeout=300s"
            )
        only_what_is_allowed_is_reached(cluster, mirrors[0])
        wait_until(lambda: all(mirror.settled(1) for mirror in mirrors))
        before = [mirror.epochs() for mirror in mirrors]
        install_release(cluster, f"--set=driver.image={NEXT},driver.maxConcurrentRollouts=1")
        wait_until(lambda: all(map(is_rolled_out, mirrors)), within_s=ROLLED_S)
        spans = [roll_out(mirror) for mirror in mirrors]
        for (_, ended), (begun, _) in pairwise(spans):
            assert ended <= begun, f"one at a time, in their order: {spans}"
        for mirror, epochs in zip(mirrors, before, strict=True):
            assert mirror.epochs() == each_once_more(epochs)
        each_unit_moves_once_when_drivers_are_restarted_by_kubectl(mirrors[0], wait_until)
        units_move_though_a_webhook_fails(cluster, mirrors[1], wait_until)
        judged = end_load(cluster)
    print(judged)
    for found in judged.values():
        assert found["sent"] > 0
        assert (found["missing"], found["repeated"]) == (0, 0), judged


def bring_next_image(cluster: Cluster) -> None:
    """Tag the same image with another name: to Kubernetes and the operator it is another image."""
    now, next = (f"docker.io/library/{name}" for name in (NOW, NEXT))
    cluster.in_node("ctr", "-n", "k8s.io", "images", "tag", "--force", now, next)


def without_heartbeats(cluster: Cluster) -> None:
    """Delete the heartbeats of earlier tests from the source.

    The first flow takes them, and a flow that takes them claims its task again.
    """
    there = f"{HEARTBEATS!r} in admin.topics()"
    in_operator(cluster, "east", f"{there} and admin.delete_topic({HEARTBEATS!r})")


def only_what_is_allowed_is_reached(cluster: Cluster, mirror: FlowInPods) -> None:
    (broker,) = cluster.pods(BROKERS, "app=west").values()
    address = broker["status"]["podIP"]
    (driver,) = mirror.pods()
    assert connects(cluster, mirror.namespace, driver, address, KAFKA_PORT)
    assert not connects(cluster, mirror.namespace, driver, address, CONTROLLER_PORT)
    assert connects(cluster, BROKERS, LOAD, address, CONTROLLER_PORT), "somebody listens there"


def connects(cluster: Cluster, namespace: str, pod: str, address: str, port: int) -> bool:
    """Return whether a pod can, by Python."""
    script = f"import socket; socket.create_connection(({address!r}, {port}), 5)"
    try:
        cluster.kubectl("-n", namespace, "exec", pod, "--", "python", "-c", script)
    except KubectlError as error:
        if "ConnectionRefused" not in str(error) and "TimeoutError" not in str(error):
            raise
        return False
    return True


def is_rolled_out(mirror: FlowInPods) -> bool:
    """Return whether it runs on drivers of the next image, and on none of the one before."""
    images = {pod["spec"]["containers"][0]["image"] for pod in mirror.pods().values()}
    return images == {NEXT} and mirror.settled(1)


def each_once_more(epochs: dict[str, int]) -> dict[str, int]:
    return {unit: epoch + 1 for unit, epoch in epochs.items()}


def each_unit_moves_once_when_drivers_are_restarted_by_kubectl(
    mirror: FlowInPods, wait_until: Wait
) -> None:
    before, pods = mirror.epochs(), mirror.pods().keys()
    mirror.kubectl("rollout", "restart", "deployment", "-l", f"{FLOW_LABEL}={mirror.name}")
    wait_until(lambda: not pods & mirror.pods().keys() and mirror.settled(1), within_s=ROLLED_S)
    assert mirror.epochs() == each_once_more(before)


def units_move_though_a_webhook_fails(
    cluster: Cluster, mirror: FlowInPods, wait_until: Wait
) -> None:
    """Move units as if the node were lost that runs a driver and an admission webhook."""
    annotated = {"metadata": {"annotations": {"look": "new"}}}
    with failing_webhook(cluster, mirror.namespace, wait_until):
        mirror.patch({"spec": {"drivers": {"podTemplate": annotated}}})
        wait_until(lambda: ready(mirror)["reason"] == "NotApplied")
        assert "failed calling webhook" in ready(mirror)["message"]
        victim = mirror.driver()
        mirror.kubectl("delete", "--force", "--grace-period=0", f"pod/{victim}")
        wait_until(lambda: mirror.settled(1) and mirror.driver() != victim)
        mirror.patch({"spec": {"drivers": {"podTemplate": None}}})
    wait_until(lambda: ready(mirror)["status"] == "True")


def ready(mirror: FlowInPods) -> Any:
    """Return the condition Ready."""
    conditions = mirror.get("rflow", mirror.name)["status"]["conditions"]
    return next(one for one in conditions if one["type"] == "Ready")


def roll_out(mirror: FlowInPods) -> tuple[datetime, datetime]:
    """Return when the template of its newest pods was created, and when they were ready."""
    sets = mirror.get("rs", "-l", f"{FLOW_LABEL}={mirror.name}")["items"]
    newest = max(one["metadata"]["creationTimestamp"] for one in sets)
    ready = [
        condition["lastTransitionTime"]
        for pod in mirror.pods().values()
        for condition in pod["status"]["conditions"]
        if condition["type"] == "Ready"
    ]
    return datetime.fromisoformat(newest), datetime.fromisoformat(max(ready))


def end_load(cluster: Cluster) -> Any:
    """End the load, and return its pod's judgement of the target."""
    pod = ("-n", BROKERS, f"pod/{LOAD}")
    cluster.kubectl("exec", *pod, "--", "python", "-c", "import os; os.kill(1, 15)")
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s", *pod)
    return json.loads(cluster.kubectl("logs", "--tail=1", *pod))
