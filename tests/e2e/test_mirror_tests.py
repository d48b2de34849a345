"""A mirror test whose pods fail: what its status says, and what is left of it."""

import signal
from collections.abc import Callable
from typing import Any

import pytest
from cluster.real import Cluster
from e2e.stage import kafka_cluster
from support.manifests import Document, mirror_test_of_another

Wait = Callable[..., Any]
SMALL = {"cpu": "100m"}
TEST = "test"

pytestmark = pytest.mark.usefixtures("brokers", "release")


def mirror_test(**spark: Any) -> Document:
    """Of a mirror that nobody runs: the tests here end before anything is compared."""
    return mirror_test_of_another(
        TEST,
        source=kafka_cluster("east"),
        target=kafka_cluster("west"),
        load={"topics": 1, "durationSeconds": 300, "messagesPerSecond": 100},
        spark={"executors": 1, "driver": SMALL, "executor": SMALL, **spark},
    )


def status(cluster: Cluster, namespace: str) -> Any:
    """With conditions by type."""
    found = cluster.get("-n", namespace, "mtest", TEST).get("status", {})
    return {**found, **{one["type"]: one for one in found.get("conditions", ())}}


def names(cluster: Cluster, namespace: str, labels: str) -> list[str]:
    found = cluster.get("-n", namespace, "pods", "-l", labels)["items"]
    return [pod["metadata"]["name"] for pod in found]


def test_a_killed_spark_driver_ends_the_test_without_a_verdict_on_the_mirror(
    cluster: Cluster, namespace: str, wait_until: Wait
) -> None:
    cluster.apply(mirror_test(), namespace=namespace)
    wait_until(
        lambda: status(cluster, namespace),
        within_s=240,
        until=lambda seen: "sending the load" in seen.get("Ready", {}).get("message", ""),
    )
    (producer,) = names(cluster, namespace, "headrace.dev/stage=produce,spark-role!=executor")
    executors = "headrace.dev/stage=produce,spark-role=executor"
    wait_until(lambda: names(cluster, namespace, executors), within_s=120)
    cluster.signal_container(namespace, producer, signal.SIGKILL)
    seen = wait_until(
        lambda: status(cluster, namespace), within_s=300, until=lambda seen: "verdict" in seen
    )
    assert seen["verdict"] == "Inconclusive"
    assert producer in seen["Ready"]["message"]
    wait_until(
        lambda: names(cluster, namespace, "spark-role=executor"),
        within_s=120,
        until=lambda left: left == [],
    )


@pytest.mark.parametrize(
    "case",
    [
        ({"driver": {"memoryMebibytes": 9_000_000}}, "Unschedulable", "spec.spark.driver"),
        ({"image": "nowhere.invalid/spark:1"}, "ImageNotPulled", "nowhere.invalid/spark:1"),
    ],
)
def test_pods_that_cannot_start_say_so(
    cluster: Cluster, namespace: str, wait_until: Wait, case: tuple[dict[str, Any], str, str]
) -> None:
    spark, reason, word = case
    cluster.apply(mirror_test(**spark), namespace=namespace)
    seen = wait_until(
        lambda: status(cluster, namespace).get("Ready", {}),
        within_s=120,
        until=lambda ready: ready.get("reason") == reason,
    )
    assert word in seen["message"]
