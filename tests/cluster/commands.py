"""Command lines of the control plane's processes."""

from pathlib import Path

from headrace.sandbox.processes import HOST

SERVICES = "10.96.0.0/16"
"""Address range of Services."""

FEW_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
"""Controllers that headrace's objects need if no node runs pods."""

IMPATIENT = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""With the default of 20 requests/s, the first service account is created seconds later."""


def etcd_command(data: Path, port: int, peer_port: int) -> list[str]:
    """Return the command line of an etcd cluster with one member."""
    client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{peer_port}"
    return [
        "--name=etcd",
        f"--data-dir={data}",
        "--unsafe-no-fsync",  # data survives kill -9 of the process, but perhaps no power cut
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=etcd={peer}",
    ]


def server_command(pki: Path, address: str, port: int, etcd_port: int) -> list[str]:
    """Return the command line of an API server with the default admission plug-ins."""
    return [
        f"--etcd-servers=http://{HOST}:{etcd_port}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--service-account-key-file={pki / 'accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        # Watches end within this time at a clean stop. Otherwise the server waits 60 s for its
        # clients.
        "--shutdown-watch-termination-grace-period=1s",
        "--profiling=false",
    ]


def controllers_command(pki: Path, kubeconfig: Path) -> list[str]:
    """Return the command line of controllers that listen on no port."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={pki / 'ca.crt'}",
        "--leader-elect=false",
        "--secure-port=0",
        *IMPATIENT,
    ]
