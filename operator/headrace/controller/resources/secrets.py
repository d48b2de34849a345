"""Secrets that a flow names, as volumes of its drivers."""

from headrace.api import ClusterSpec, ReplicationFlow
from headrace.k8s import Object

SECRETS_FOLDER = "/etc/headrace/secrets"


def secret_names(flow: ReplicationFlow) -> list[str]:
    """The Secrets that the flow's two clusters refer to, in order, each once."""
    return secrets_of(flow.spec.source, flow.spec.target)


def secrets_of(*clusters: ClusterSpec) -> list[str]:
    """The Secrets that clusters refer to, in order, each once."""
    return sorted({use.secret_name for cluster in clusters for use in cluster.uses()})


def build_volumes(names: list[str]) -> list[Object]:
    """A volume each. Optional: a driver starts without, says in its connector's status which
    Secret or key is missing, and goes on when it appears."""
    return [
        {"name": f"secret-{number}", "secret": {"secretName": name, "optional": True}}
        for number, name in enumerate(names)
    ]


def build_mounts(names: list[str]) -> list[Object]:
    """``SECRETS_FOLDER/<secret>/<key>``. Whole volumes, never subPath: the kubelet does not bring
    those up to date when a Secret changes."""
    return [
        {"name": f"secret-{number}", "mountPath": f"{SECRETS_FOLDER}/{name}", "readOnly": True}
        for number, name in enumerate(names)
    ]
