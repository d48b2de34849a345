"""Secrets and ConfigMaps that a flow names, as volumes of its drivers."""

from headrace.api import ClusterSpec, ReplicationFlow
from headrace.api.cluster import CONFIG_MAPS
from headrace.k8s import Object

SECRETS_FOLDER = "/etc/headrace/secrets"


def secret_names(flow: ReplicationFlow) -> list[str]:
    """Return the folders that the flow's two clusters refer to, in order, each once."""
    return secrets_of(flow.spec.source, flow.spec.target)


def secrets_of(*clusters: ClusterSpec) -> list[str]:
    """Return the folders of Secrets and ConfigMaps that clusters refer to, in order, each once."""
    return sorted({use.folder for cluster in clusters for use in cluster.uses()})


def build_volumes(folders: list[str]) -> list[Object]:
    """Return a volume for each folder.

    All are optional: a driver starts without, says in its connector's status which object or key
    is missing, and continues when it appears.
    """
    return [_build_volume(number, folder) for number, folder in enumerate(folders)]


def build_mounts(folders: list[str]) -> list[Object]:
    """Return the mounts at ``SECRETS_FOLDER``.

    Volumes are mounted whole, never with subPath: the kubelet does not update those when a Secret
    changes.
    """
    return [
        {"name": f"secret-{number}", "mountPath": f"{SECRETS_FOLDER}/{folder}", "readOnly": True}
        for number, folder in enumerate(folders)
    ]


def _build_volume(number: int, folder: str) -> Object:
    volume = f"secret-{number}"
    if folder.startswith(f"{CONFIG_MAPS}/"):
        config_map = folder.removeprefix(f"{CONFIG_MAPS}/")
        return {"name": volume, "configMap": {"name": config_map, "optional": True}}
    return {"name": volume, "secret": {"secretName": folder, "optional": True}}
