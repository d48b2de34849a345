"""A cluster together with the folder that holds the Secrets which its spec names."""

from dataclasses import dataclass
from pathlib import Path

from headrace.api.cluster import ClusterSpec


@dataclass(frozen=True)
class ClusterAccess:
    """What a process needs to get into a cluster; it holds no secret itself."""

    spec: ClusterSpec
    """Where the cluster is, and which Secrets open it."""
    field: str = "spec"
    """Where ``spec`` is written in its manifest, for sentences: ``spec.source``."""
    secrets: Path | None = None
    """Folder of Secrets as Kubernetes mounts them, ``<name>/<key>``; None: there is none."""
    cluster_id: str | None = None
    """Id of the cluster where it is known: a broker that reports another one is not believed."""

    @property
    def alias(self) -> str:
        """Name of the cluster."""
        return self.spec.alias

    @property
    def bootstrap_servers(self) -> str:
        """Brokers to ask first."""
        return self.spec.bootstrap_servers

    @property
    def name(self) -> str:
        """Alias and address, for messages."""
        return f"{self.alias} ({self.bootstrap_servers})"
