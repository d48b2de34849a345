"""The brokers and the operator in the cluster, before the first test or the demo begins."""

import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from cluster.real import Cluster
from support.helm import CHART, REQUIRED, helm
from support.manifests import Document, flow

from headrace import __version__

BROKERS = "kafka"
"""The namespace of the brokers."""
OPERATORS = "headrace"
"""The namespace of the release, and its name."""
OPERATOR = "headrace-operator"
"""The operator's Deployment, and its Lease."""
VALUES = (
    REQUIRED,
    # The node is small, and its processors are to be shared, not set aside.
    "--set=driver.resources.requests.cpu=10m",
    "--set=driver.networkPolicy=true,mirrorTests.networkPolicy=true",
)
"""Options of every release."""
MIRROR_TESTS_MAY = "--set=chaos.enabled=true,rehearsal.enabled=true"
"""Options of the release."""
KAFKA_PORT = 9092
PATIENCE = "300s"
SMALL: Document = {"resources": {"requests": {"cpu": "100m"}}}
"""Requests of a Spark pod, because all pods share two cores."""
RESTRICTED: Document = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Settings that restricted pod security requires of a container."""
_USER = 10001
"""User id of all our images."""


def kafka_cluster(alias: str) -> Document:
    """Return the cluster's fields in a flow or a test."""
    return {"alias": alias, "bootstrapServers": _address(alias)}


def flow_between_brokers(topics: str, **drivers: Any) -> Document:
    """Flow ``mirror`` of two drivers, from east to west."""
    clusters = {"source": kafka_cluster("east"), "target": kafka_cluster("west")}
    drivers = {"replicas": 2, **drivers}
    return flow("mirror", **clusters, topics={"include": [topics]}, drivers=drivers)


def install_brokers(cluster: Cluster, *aliases: str) -> None:
    """Install a cluster of one broker for each alias, and return when they answer."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BROKERS}},
        *(object for alias in aliases for object in (_service(alias), _broker(alias))),
        namespace=BROKERS,
    )
    for alias in aliases:
        wait_for_rollout(cluster, BROKERS, alias)


def make_topic(cluster: Cluster, alias: str, name: str, partitions: int) -> None:
    """Create a topic in that cluster, unless it exists."""
    in_operator(cluster, alias, f"admin.create_topic({name!r}, {partitions})")


def records(cluster: Cluster, alias: str, topic: str, partitions: int) -> int:
    """Return the number of records ever sent to a topic. Raises KubectlError without the topic."""
    places = f"[TopicPartition({topic!r}, number) for number in range({partitions})]"
    ends = f"admin.offsets({places}, Position.LATEST)"
    return int(in_operator(cluster, alias, f"print(sum({ends}.values()))"))


def send(cluster: Cluster, alias: str, topic: str, count: int, first_ms: int) -> None:
    """Send records to both partitions of a topic. ``first_ms`` is the timestamp of the first."""
    spec = f"ClusterSpec.model_validate({kafka_cluster(alias)})"
    in_operator(
        cluster,
        alias,
        "from headrace.kafka import make_producer\n"
        f"producer = make_producer(ClusterAccess({spec}))\n"
        f"for n in range({count}):\n"
        f"    time_ms = {first_ms} + n\n"
        f"    producer.produce({topic!r}, b'%d' % n, partition=n % 2, timestamp=time_ms)\n"
        "assert producer.flush(60) == 0",
    )


def in_operator(cluster: Cluster, alias: str, program: str) -> str:
    """Return the output of a program in an operator's pod; it has that cluster's ``admin``."""
    script = (
        "from headrace.api import ClusterAccess, ClusterSpec\n"
        "from headrace.api.partitions import TopicPartition\n"
        "from headrace.kafka import Admin, Position\n"
        f"admin = Admin(ClusterAccess(ClusterSpec.model_validate({kafka_cluster(alias)})))\n"
        f"{program}"
    )
    pod = ("-n", OPERATORS, f"deployment/{OPERATOR}")
    return cluster.kubectl("exec", *pod, "--", "python", "-c", script)


def install_release(cluster: Cluster, *arguments: str) -> None:
    """Install the chart, or upgrade it, and return when the operators are ready."""
    about = (OPERATORS, str(CHART), f"--namespace={OPERATORS}", "--create-namespace")
    helm(
        *("upgrade", "--install", *about, "--wait", f"--timeout={PATIENCE}", *VALUES, *arguments),
        kubeconfig=cluster.kubeconfig,
    )


def wait_for_rollout(cluster: Cluster, namespace: str, deployment: str) -> None:
    """Wait until all pods have the newest template and are ready."""
    what = ("rollout", "status", f"deployment/{deployment}", f"--timeout={PATIENCE}")
    cluster.kubectl("-n", namespace, *what)


def load_images(cluster: Cluster, archives: Path) -> None:
    """Bring what ``make images images-test`` built to the node."""
    for archive in sorted(archives.glob("*.tar")):
        cluster.load(archive)


def _address(alias: str) -> str:
    return f"{alias}.{BROKERS}:{KAFKA_PORT}"


def _service(alias: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": alias},
        "spec": {"selector": {"app": alias}, "ports": [{"port": KAFKA_PORT}]},
    }


def _broker(alias: str) -> Document:
    id = uuid.uuid5(uuid.NAMESPACE_DNS, alias).bytes
    env = {
        "CLUSTER_ID": urlsafe_b64encode(id).decode().rstrip("="),
        "KAFKA_LISTENERS": f"PLAINTEXT://:{KAFKA_PORT},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{_address(alias)}",
        "KAFKA_HEAP_OPTS": "-Xmx512m",
    }
    container = {
        "name": "kafka",
        "image": f"headrace-kafka:{__version__}",
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "ports": [{"containerPort": KAFKA_PORT}],
        "readinessProbe": {"tcpSocket": {"port": KAFKA_PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/kafka"}],
    }
    pod = {
        "enableServiceLinks": False,  # KAFKA_ variables are settings
        "securityContext": {"runAsUser": _USER, "runAsNonRoot": True, "fsGroup": _USER},
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": alias},
        "spec": {
            "selector": {"matchLabels": {"app": alias}},
            "template": {"metadata": {"labels": {"app": alias}}, "spec": pod},
        },
    }
