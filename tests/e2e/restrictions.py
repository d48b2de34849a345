"""A namespace in which next to nothing is allowed: what platform teams give to a team."""

from typing import Any

from cluster.real import Cluster
from e2e.stage import BROKERS, KAFKA_PORT
from support.manifests import Document

API_PORT = 6443
SPARK_PORTS = (7078, 7079)
"""Ports of the Spark driver and of block managers."""


def quota(**hard: str) -> Document:
    """Return a quota. With ``limits.cpu`` in it, every pod needs such a limit."""
    return _object("v1", "ResourceQuota", "team", hard=hard)


def policies(cluster: Cluster) -> list[Document]:
    """Return policies that allow no ingress, and egress as docs/security-kubernetes.md requires."""
    brokers = {"matchLabels": {"kubernetes.io/metadata.name": BROKERS}}
    out = [
        {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
        {"to": [{"ipBlock": {"cidr": f"{cluster.node_ip}/32"}}], "ports": _tcp(API_PORT)},
        {"to": [{"namespaceSelector": brokers}], "ports": _tcp(KAFKA_PORT)},
        {"to": [{"podSelector": {}}], "ports": _tcp(*SPARK_PORTS)},
    ]
    return [
        _policy("nothing", policyTypes=["Ingress", "Egress"]),
        _policy("out", policyTypes=["Egress"], egress=out),
    ]


def _tcp(*ports: int) -> list[Document]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def _policy(name: str, **spec: Any) -> Document:
    return _object("networking.k8s.io/v1", "NetworkPolicy", name, podSelector={}, **spec)


def _object(api_version: str, kind: str, name: str, **spec: Any) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
