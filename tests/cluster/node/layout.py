"""Folders, addresses and names of the node."""

from pathlib import Path

from headrace.host import cache_home

RUN = Path("/run/headrace-cluster")
"""File system in memory for keys, kubeconfigs, logs, pid files and etcd's data. Deleted by down."""
PKI, LOGS, HIDDEN = RUN / "pki", RUN / "log", RUN / "hidden"
NETWORK, MOUNTS = RUN / "network", RUN / "mounts"
"""Files of the two namespaces."""
MADE = RUN / "made"
"""File that lists the directories outside that were created for the cell, one on each line."""
WHOLE = RUN / "whole"
"""File that exists when the cell, its files and the pause image are complete."""
ADMIN = RUN / "admin.conf"
AUDIT_POLICY, AUDIT_LOG = RUN / "audit.yaml", LOGS / "audit.log"

BRIDGE = "headrace0"
"""Only interface except loopback. Pods are connected to it."""
NODE = "headrace"
NODE_IP = "10.244.0.1"
"""Address of the bridge, of the API server, of the DNS server and of programs beside pods."""
POD_NETWORK, FIRST_POD_IP = "10.244.0.0/24", "10.244.0.10"
SERVICE_IP = "10.96.0.1"
"""Address of the API server in pods, the first of ``SERVICES``."""
API_PORT, ETCD_PORT, ETCD_PEER_PORT = 6443, 2379, 2380
DNS_PORT = 53

RUNTIME = Path("/run/containerd/containerd.sock")
"""Usual socket of containerd, as seen from inside the cell."""
CGROUP = "headrace-cluster"


def store() -> Path:
    """Return the folder of containerd's images, which outlives a cluster."""
    return cache_home() / "node-store"


def kubelet_folder() -> Path:
    """Return the folder of pods' volumes and logs, which may be large. Deleted by down."""
    return cache_home() / "node-pods"


def cgroups() -> list[Path]:
    """Return the node's cgroups: one in version 2, or one for each hierarchy in version 1."""
    top = Path("/sys/fs/cgroup")
    if (top / "cgroup.procs").exists():
        return [top / CGROUP]
    return [file.parent / CGROUP for file in top.glob("*/cgroup.procs")]
