"""Packet filter of the node that follows the NetworkPolicies of the cluster."""

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from cluster.kubectl import KubectlError
from cluster.policies import CHAIN, HOOKS, rules
from cluster.real import Cluster

_EVERY_S = 0.5
_IPTABLES = ("iptables", "-w")


@contextmanager
def enforcement(cluster: Cluster) -> Iterator[None]:
    """Enforce NetworkPolicies within the ``with`` block. Unused chains remain at its end."""
    first, ended = _apply(cluster, ""), threading.Event()
    for hook in HOOKS:
        cluster.in_node(*_IPTABLES, "-I", hook, "-j", CHAIN)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(_follow, cluster, first, ended)
        try:
            yield
        finally:
            ended.set()
            for hook in HOOKS:
                cluster.in_node(*_IPTABLES, "-D", hook, "-j", CHAIN)
        following.result()


def _follow(cluster: Cluster, applied: str, ended: threading.Event) -> None:
    while not ended.wait(_EVERY_S):
        with suppress(KubectlError):  # a test may have ended the API server
            applied = _apply(cluster, applied)


def _apply(cluster: Cluster, applied: str) -> str:
    everything = cluster.get("networkpolicies,pods,namespaces", "--all-namespaces")
    now = rules(everything["items"])
    if now != applied:
        with tempfile.NamedTemporaryFile("w", suffix=".rules") as file:
            file.write(now)
            file.flush()
            cluster.in_node("iptables-restore", "-w", "--noflush", file.name)
    return now
