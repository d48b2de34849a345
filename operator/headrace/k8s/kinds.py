"""The kinds of objects that headrace reads and writes, and where the API server serves them."""

from dataclasses import dataclass
from typing import Any

from headrace.api import API_VERSION
from headrace.errors import Fatal

Object = dict[str, Any]
"""An object as the API server's JSON has it."""
Objects = list[Object]


@dataclass(frozen=True)
class Kind:
    """One kind of object. All but namespaces and definitions live in a namespace."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """Of the API; empty for the core's."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """As ``kubectl`` and an RBAC error write it: ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Below the API server's address; all namespaces without ``namespace``."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        where = f"namespaces/{namespace}" if namespace and self.namespaced else ""
        return "/".join(part for part in (root, where, self.plural, name, subresource) if part)

    def __str__(self) -> str:
        return self.name


FLOW = Kind(API_VERSION, "ReplicationFlow", "replicationflows")
TASK = Kind(API_VERSION, "ReplicationTask", "replicationtasks")
MIRROR_TEST = Kind(API_VERSION, "MirrorTest", "mirrortests")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
REPLICA_SET = Kind("apps/v1", "ReplicaSet", "replicasets")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
EVENT = Kind("events.k8s.io/v1", "Event", "events")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
POD_DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
JOB = Kind("batch/v1", "Job", "jobs")
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)

_KINDS = {
    (kind.api_version, kind.name): kind
    for kind in list(globals().values())
    if isinstance(kind, Kind)
}


def kind_of(object: Object) -> Kind:
    """The kind that an object says it is; ``Fatal`` for one that headrace does not know."""
    version, name = object.get("apiVersion", ""), object.get("kind", "")
    if (kind := _KINDS.get((version, name))) is None:
        raise Fatal(f"internal error, please report it: no kind {name} of {version} is known")
    return kind
