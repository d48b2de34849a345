"""Files that the node's components read at their start: keys, kubeconfigs, configuration."""

import json
from pathlib import Path
from typing import Any

import yaml
from cluster.audit import write_policy
from cluster.certificates import Authority, write_key
from cluster.commands import IMPATIENT
from cluster.kubectl import write_kubeconfig
from cluster.node.layout import (
    ADMIN,
    API_PORT,
    AUDIT_POLICY,
    BRIDGE,
    CGROUP,
    FIRST_POD_IP,
    NODE,
    NODE_IP,
    PKI,
    POD_NETWORK,
    RUN,
    RUNTIME,
    SERVICE_IP,
    kubelet_folder,
    store,
)

from headrace.sandbox.processes import HOST

PAUSE_IMAGE = "localhost/pause:1"
"""Image of each pod's first process."""
KUBELET, PROXY, CONTAINERD = RUN / "kubelet.yaml", RUN / "kube-proxy.yaml", RUN / "containerd.toml"
NETWORKS = RUN / "networks"
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")

USERS = {
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
"""User and group of each client of the API server, by the names in RBAC's default bindings."""


def write_files(relay_port: int, plugins: Path) -> None:
    """Write all files. Clients outside the cell connect to ``relay_port`` on 127.0.0.1."""
    authority = Authority(PKI)
    authority.sign("apiserver", NODE, servers=(NODE, NODE_IP, SERVICE_IP, *SERVICE_NAMES))
    authority.sign("admin", "admin", "system:masters")
    write_key(PKI / "accounts.key")
    write_policy(AUDIT_POLICY)
    for name, (user, group) in USERS.items():
        authority.sign(name, user, group)
        url = f"https://{NODE_IP}:{API_PORT}"
        write_kubeconfig(kubeconfig(name), url, authority.certificate, authority.user(name))
    url = f"https://{HOST}:{relay_port}"
    write_kubeconfig(ADMIN, url, authority.certificate, authority.user("admin"))
    # Pods with the node's DNS have no DNS: no address outside can be reached.
    (RUN / "resolv.conf").write_text("search .\n")
    NETWORKS.mkdir()
    (NETWORKS / "pods.conflist").write_text(json.dumps(_pod_network()))
    CONTAINERD.write_text(_containerd(plugins))
    KUBELET.write_text(yaml.safe_dump(_kubelet()))
    PROXY.write_text(yaml.safe_dump(_proxy()))


def kubeconfig(name: str) -> Path:
    """Return the path of the kubeconfig of one of USERS."""
    return RUN / f"{name}.conf"


def _pod_network() -> dict[str, Any]:
    pods = {"subnet": POD_NETWORK, "rangeStart": FIRST_POD_IP}
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,  # a pod may reach itself through its Service
        "ipam": {
            "type": "host-local",
            "dataDir": str(RUN / "addresses"),
            "ranges": [[pods]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


def _containerd(plugins: Path) -> str:
    return f"""
version = 2
root = "{store()}"
state = "{RUN}/containerd"
[grpc]
  address = "{RUNTIME}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE, runc fails at a negative one: "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{NETWORKS}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def _kubelet() -> dict[str, Any]:
    x509 = {"clientCAFile": str(PKI / "ca.crt")}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_IP,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": x509,
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(PKI / "apiserver.crt"),
        "tlsPrivateKeyFile": str(PKI / "apiserver.key"),
        "containerRuntimeEndpoint": f"unix://{RUNTIME}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [NODE_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": str(RUN / "resolv.conf"),
        "podLogsDir": str(kubelet_folder() / "logs"),
        # No image can be pulled again: images are never removed, and a full disk evicts late.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        **_rates(),
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "volumeStatsAggPeriod": "0s",
    }


def _rates() -> dict[str, int]:
    """Return IMPATIENT in the format of a kubelet's configuration file."""
    rate, burst = (int(flag.partition("=")[2]) for flag in IMPATIENT)
    return {"kubeAPIQPS": rate, "kubeAPIBurst": burst}


def _proxy() -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig("kube-proxy"))},
        "mode": "iptables",
        "hostnameOverride": NODE,
        "clusterCIDR": POD_NETWORK,
        "bindAddress": NODE_IP,
        "healthzBindAddress": f"{HOST}:10256",
        "metricsBindAddress": f"{HOST}:10249",
        "nodePortAddresses": [f"{NODE_IP}/32", "127.0.0.0/8"],
        # These settings are not namespaced.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    }
