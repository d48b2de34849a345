"""Where the node's things are: its folders, its addresses, its names."""

from pathlib import Path

from headrace.host import cache_home

RUN = Path("/run/headrace-cluster")
"""A file system in memory: keys, kubeconfigs, logs, pid files, etcd's data. Gone after down."""
PKI, LOGS, HIDDEN = RUN / "pki", RUN / "log", RUN / "hidden"
NETWORK, MOUNTS = RUN / "network", RUN / "mounts"
"""The two namespaces, as files."""
MADE = RUN / "made"
"""The directories outside that were made for the cell, one a line."""
WHOLE = RUN / "whole"
"""Written when the cell, its files and the image of pods' first process are there."""
ADMIN = RUN / "admin.conf"

BRIDGE = "headrace0"
"""The only interface but loopback; pods hang on it."""
NODE = "headrace"
NODE_IP = "10.244.0.1"
"""The bridge's: also the API server's, the DNS server's, and that of whatever runs beside pods."""
POD_NETWORK, FIRST_POD_IP = "10.244.0.0/24", "10.244.0.10"
SERVICE_IP = "10.96.0.1"
"""Under which pods know the API server: the first of ``SERVICES``."""
API_PORT, ETCD_PORT, ETCD_PEER_PORT = 6443, 2379, 2380
DNS_PORT = 53

RUNTIME = Path("/run/containerd/containerd.sock")
"""Usual socket of containerd, as seen from inside the cell."""
CGROUP = "headrace-cluster"


def store() -> Path:
    """Return the folder of containerd's images, which outlives a cluster."""
    return cache_home() / "node-store"


def kubelet_folder() -> Path:
    """Volumes and logs of pods, which may be large. Gone after down."""
    return cache_home() / "node-pods"


def cgroups() -> list[Path]:
    """Return the node's cgroups: one in version 2, or one for each hierarchy in version 1."""
    top = Path("/sys/fs/cgroup")
    if (top / "cgroup.procs").exists():
        return [top / CGROUP]
    return [file.parent / CGROUP for file in top.glob("*/cgroup.procs")]
