"""A mirror test, in pods, of a mirror that is not headrace's: a real MirrorMaker 2."""

from collections.abc import Callable
from typing import Any

import pytest
from cluster.real import Cluster
from e2e.mirror_test import MirrorTestInPods
from e2e.stage import RESTRICTED, SMALL, kafka_cluster
from support.manifests import Document, mirror_test_of_another

from headrace import __version__

Wait = Callable[..., Any]
MIRROR = {"app": "mirror-maker"}
MESSAGES, PER_SECOND = 12_000, 200
FOLDER = "/etc/mirror-maker"

pytestmark = pytest.mark.usefixtures("brokers", "release")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_mirror_maker_2_loses_its_pod_and_is_judged(
    cluster: Cluster, namespace: str, wait_until: Wait
) -> None:
    name = f"judged-{namespace}"
    cluster.apply(*mirror_maker(rf"{name}-\d+"), namespace=namespace)
    cluster.kubectl("-n", namespace, "rollout", "status", "deployment/mirror", "--timeout=300s")
    test = mirror_test_of_another(
        name,
        source=kafka_cluster("east"),
        target=kafka_cluster("west"),
        load={
            "topics": 1,
            "partitions": 2,
            "messages": MESSAGES,
            "messagesPerSecond": PER_SECOND,
        },
        settleSeconds=180,
        chaos=[{"atPercent": 30, "action": "KillPod", "selector": MIRROR}],
        spark={"executors": 1, "driver": SMALL, "executor": SMALL},
    )
    cluster.apply(test, namespace=namespace)
    judged = MirrorTestInPods(cluster, namespace, name)
    (pod,) = cluster.pods(namespace, "app=mirror-maker")
    assert wait_until(judged.verdict, within_s=800) == "Passed", judged.status()
    result = judged.result()
    counts, (fault,) = result["counts"], result["faults"]
    assert (counts["acknowledged"], counts["missing"]) == (MESSAGES, 0)
    assert (counts["reordered"], counts["corrupted"]) == (0, 0)
    assert fault["driver"] == f"pod {pod}"
    assert fault["recoverySeconds"] > 0
    assert pod not in cluster.pods(namespace, "app=mirror-maker")


def mirror_maker(topics: str) -> tuple[Document, Document]:
    """Return a worker in dedicated mode (KIP-382), as users run it; it finds new topics within 5 s.

    It writes no heartbeats. It would also write them to east, where flows of other tests find them.
    """
    east, west = (kafka_cluster(alias)["bootstrapServers"] for alias in ("east", "west"))
    topics = topics.replace("\\", "\\\\")  # as java.util.Properties reads it
    settings = f"""
        clusters = east, west
        east.bootstrap.servers = {east}
        west.bootstrap.servers = {west}
        east->west.enabled = true
        east->west.topics = {topics}
        west->east.enabled = false
        emit.heartbeats.enabled = false
        refresh.topics.interval.seconds = 5
        replication.factor = 1
        checkpoints.topic.replication.factor = 1
        heartbeats.topic.replication.factor = 1
        offset-syncs.topic.replication.factor = 1
        config.storage.replication.factor = 1
        offset.storage.replication.factor = 1
        status.storage.replication.factor = 1
        """
    container = {
        "name": "mirror-maker",
        "image": f"headrace-kafka:{__version__}",
        "imagePullPolicy": "Never",
        "command": [
            *("/opt/java/bin/java", "-Xmx256m", "-XX:TieredStopAtLevel=1"),
            *("-cp", "/opt/mirror-maker/jars/*"),
            *("org.apache.kafka.connect.mirror.MirrorMaker", f"{FOLDER}/mirror.properties"),
        ],
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "settings", "mountPath": FOLDER},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
    pod = {
        "containers": [container],
        "volumes": [
            {"name": "settings", "configMap": {"name": "mirror"}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mirror"},
        "data": {"mirror.properties": settings},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mirror"},
        "spec": {
            "selector": {"matchLabels": MIRROR},
            "template": {"metadata": {"labels": MIRROR}, "spec": pod},
        },
    }
    return config, deployment
