"""Processes of the node in the order of their start, with their readiness checks."""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import yaml
from cluster.audit import audit_flags
from cluster.commands import IMPATIENT, controllers_command, etcd_command, server_command
from cluster.component import Daemon, is_ok
from cluster.kubectl import Kubectl, KubectlError
from cluster.node.cell import in_cell, inside
from cluster.node.files import CONTAINERD, KUBELET, PROXY, kubeconfig
from cluster.node.layout import (
    ADMIN,
    API_PORT,
    AUDIT_LOG,
    AUDIT_POLICY,
    DNS_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    HIDDEN,
    LOGS,
    NODE,
    NODE_IP,
    PKI,
    RUN,
    RUNTIME,
    SERVICE_IP,
    kubelet_folder,
)

from headrace.sandbox.processes import HOST

Check = Callable[[], bool]


def components(cluster: Path, node: Path) -> dict[str, Daemon]:
    """Return all components by name, run from the two programs of ``cluster.build``."""
    kubectl = Kubectl(lambda: cluster, ADMIN)

    def answers(*arguments: str, until: Callable[[str], bool] = bool) -> Check:
        def check() -> bool:
            with suppress(KubectlError):
                return until(kubectl.kubectl(*arguments, "--request-timeout=2s"))
            return False

        return check

    is_schedulable = answers(
        *("get", "node", NODE, "-o"),
        "jsonpath={.status.conditions[?(@.type=='Ready')].status} {.spec.taints}",
        until=lambda output: output.strip() == "True",
    )
    every = {
        "containerd": _daemon(
            "containerd", ("containerd", f"--config={CONTAINERD}"), _accepts(RUNTIME)
        ),
        "etcd": _daemon(
            "etcd",
            (cluster, "etcd", *etcd_command(RUN / "etcd", ETCD_PORT, ETCD_PEER_PORT)),
            lambda: inside(lambda: is_ok(f"http://{HOST}:{ETCD_PORT}/readyz")),
        ),
        "kube-apiserver": _daemon(
            "kube-apiserver",
            (cluster, "kube-apiserver", *_server_flags()),
            answers("get", "--raw", "/readyz"),
        ),
        "relay": _daemon("relay", (node, "relay", f"{NODE_IP}:{API_PORT}"), lambda: True),
        "kube-controller-manager": _daemon(
            "kube-controller-manager",
            (cluster, "kube-controller-manager", *_controllers_flags()),
            # A pod that is created before them is rejected.
            answers("get", "-n", "default", "serviceaccount/default", "cm/kube-root-ca.crt"),
        ),
        "kube-scheduler": _daemon(
            "kube-scheduler",
            (node, "kube-scheduler", *_scheduler_flags()),
            lambda: inside(lambda: is_ok(f"https://{HOST}:10259/healthz", PKI / "ca.crt")),
        ),
        "kubelet": _daemon(
            "kubelet",
            (
                *(node, "kubelet", f"--config={KUBELET}", f"--kubeconfig={kubeconfig('kubelet')}"),
                f"--root-dir={kubelet_folder()}",
                f"--hostname-override={NODE}",
                f"--node-ip={NODE_IP}",
            ),
            # The API server's status of the node may predate the last stop.
            lambda: inside(lambda: is_ok(f"http://{HOST}:10248/healthz")) and is_schedulable(),
        ),
        "kube-proxy": _daemon(
            "kube-proxy",
            (node, "kube-proxy", f"--config={PROXY}"),
            lambda: inside(lambda: is_ok(f"http://{HOST}:10256/healthz")),
        ),
        "dns": _daemon(
            "dns",
            (
                *(node, "dns", f"--kubeconfig={kubeconfig('kube-proxy')}"),
                f"--listen={NODE_IP}:{DNS_PORT}",
            ),
            lambda: inside(_resolves),
        ),
    }
    every["relay"].listen = (HOST, relay_port())
    return every


def relay_port() -> int:
    """Return the API server's port for clients outside the cell, read from their kubeconfig."""
    url = yaml.safe_load(ADMIN.read_text())["clusters"][0]["cluster"]["server"]
    return int(url.rpartition(":")[2])


def _daemon(name: str, command: Sequence[str | Path], is_ready: Check) -> Daemon:
    return Daemon(in_cell(*command), LOGS / f"{name}.log", is_ready)


def _server_flags() -> list[str]:
    return [
        *server_command(PKI, NODE_IP, API_PORT, ETCD_PORT),
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={PKI / 'admin.crt'}",
        f"--kubelet-client-key={PKI / 'admin.key'}",
        f"--kubelet-certificate-authority={PKI / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        *audit_flags(AUDIT_POLICY, AUDIT_LOG),
    ]


def _controllers_flags() -> list[str]:
    return [
        *controllers_command(PKI, kubeconfig("kube-controller-manager")),
        "--use-service-account-credentials=true",
        # With the default of 5 s, a new node stays tainted for 5 s.
        "--node-monitor-period=1s",
    ]


def _scheduler_flags() -> list[str]:
    return [
        f"--kubeconfig={kubeconfig('kube-scheduler')}",
        f"--bind-address={HOST}",
        f"--tls-cert-file={PKI / 'apiserver.crt'}",
        f"--tls-private-key-file={PKI / 'apiserver.key'}",
        "--authentication-skip-lookup=true",
        "--leader-elect=false",
        *IMPATIENT,
    ]


def _accepts(path: Path) -> Check:
    """Return a check of whether a process listens on a Unix socket of the cell."""
    seen = HIDDEN / path.relative_to("/")

    def check() -> bool:
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(str(seen))
            return True
        return False

    return check


def _resolves() -> bool:
    """Return True if the DNS server resolves the API server's Service."""
    name = b"".join(
        bytes([len(label)]) + label for label in b"kubernetes.default.svc.cluster.local".split(b".")
    )
    flags_and_counts = bytes.fromhex("0100 0001 0000 0000 0000")
    query = b"hr" + flags_and_counts + name + bytes.fromhex("00 0001 0001")  # A, IN
    with socket.socket(type=socket.SOCK_DGRAM) as client, suppress(OSError):
        client.settimeout(1)
        client.sendto(query, (NODE_IP, DNS_PORT))
        return client.recv(512).endswith(socket.inet_aton(SERVICE_IP))
    return False
