"""Kinds of objects, where the API server serves them, and our types for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from headrace.api import API_VERSION, MirrorTest, ReplicationFlow, ReplicationTask
from headrace.api.meta import ObjectMeta
from headrace.errors import Fatal, InvalidSpec

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
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """Resource name as ``kubectl`` and an RBAC error write it: ``deployments.apps``."""
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
    """Return the kind of an object; raise ``Fatal`` for a kind that headrace does not use."""
    version, name = object.get("apiVersion", ""), object.get("kind", "")
    if (kind := _KINDS.get((version, name))) is None:
        raise Fatal(f"internal error, please report it: no kind {name} of {version} is known")
    return kind


Resource = TypeVar("Resource", ReplicationFlow, ReplicationTask, MirrorTest)


class InvalidObject(InvalidSpec):
    """An object that this version does not understand."""

    def __init__(self, message: str, fields: Iterable[str]) -> None:
        super().__init__(message)
        self.fields = frozenset(fields)
        """Fields of its spec that are invalid, or that a broken rule blames."""


_RULE = "rule"
"""Error type of our own: a value that every version rejects, such as a bad regular expression."""
_METADATA = frozenset(info.alias for info in ObjectMeta.model_fields.values())


def parse(type: type[Resource], object: Object) -> Resource:
    """Parse an object of one of our kinds.

    Unknown parts of its status are dropped: a newer version or a user may have written them, and
    its owner writes the status again. Raise ``InvalidObject`` for an invalid object: the definition
    (CRD) in the cluster has another version, or the object breaks a rule that a definition cannot
    check.
    """
    metadata = {
        key: value
        for key, value in object["metadata"].items()
        if key in _METADATA and key != "managedFields"
    }
    object = object | {"metadata": metadata}
    try:
        return type.model_validate(object)
    except ValidationError as error:
        invalid = [one for one in error.errors() if one["loc"][0] != "status"]
        if not invalid:
            return type.model_validate(object | {"status": _understood(object["status"], error)})
        where = ".".join(map(str, invalid[0]["loc"]))
        what_to_do = "Correct that field"
        if invalid[0]["type"] != _RULE:
            what_to_do += (
                "; or, if a newer version has it, its definition (CRD) and this program are of "
                "different versions: apply the definitions that belong to it"
            )
        raise InvalidObject(
            f"{type.__name__} {metadata['name']} in namespace {metadata.get('namespace')} is not "
            f"understood: {where}: {invalid[0]['msg']}. {what_to_do}",
            (str(one["loc"][1]) for one in invalid if one["loc"][0] == "spec" and one["loc"][1:]),
        ) from error


def _understood(status: Object, error: ValidationError) -> Object:
    """Return a status without the fields in ``error``; empty if it names the status itself."""
    invalid = {one["loc"][1:2] for one in error.errors()}
    if () in invalid:
        return {}
    return {field: value for field, value in status.items() if (field,) not in invalid}


def owner_reference(owner: ReplicationFlow | MirrorTest) -> Object:
    """In ``metadata.ownerReferences`` of what is deleted with its (controlling) owner."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def is_owned(
    references: Iterable[Mapping[str, Any]] | None, owner: ReplicationFlow | MirrorTest
) -> bool:
    """Whether an object's ``metadata.ownerReferences`` name this very owner.

    Not an earlier one of that name, whose objects are on their way out.
    """
    return any(reference.get("uid") == owner.metadata.uid for reference in references or ())


def owns(owner: ReplicationFlow | MirrorTest, object: Object) -> bool:
    """Whether an object, as the API server has it, is this very owner's (``is_owned``)."""
    return is_owned(object["metadata"].get("ownerReferences"), owner)
