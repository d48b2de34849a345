"""Kinds of objects, their API paths, and the types of headrace's own kinds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from headrace.api import API_VERSION, MirrorTest, ReplicationFlow, ReplicationTask
from headrace.api.meta import ObjectMeta
from headrace.errors import Fatal, InvalidSpec

Object = dict[str, Any]
"""An object as decoded from the API server's JSON."""
Objects = list[Object]


@dataclass(frozen=True)
class Kind:
    """A kind of object. ``namespaced`` is False for namespaces and custom resource definitions."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group, or empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """Resource name in ``kubectl`` and RBAC errors, for example ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the API path of objects. Without ``namespace`` it is for all namespaces."""
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
    """Return the kind of an object. Raise ``Fatal`` for a kind that headrace does not use."""
    version, name = object.get("apiVersion", ""), object.get("kind", "")
    if (kind := _KINDS.get((version, name))) is None:
        raise Fatal(f"internal error, please report it: no kind {name} of {version} is known")
    return kind


Resource = TypeVar("Resource", ReplicationFlow, ReplicationTask, MirrorTest)


class InvalidObject(InvalidSpec):
    """An object that is invalid for this version of headrace."""

    def __init__(self, message: str, fields: Iterable[str]) -> None:
        super().__init__(message)
        self.fields = frozenset(fields)
        """Fields of the spec that are invalid, or that a violated rule names."""


_RULE = "rule"
"""Error type of a violation of headrace's own rules, such as an invalid regular expression.

All versions of headrace check these rules. A definition (CRD) of another version is therefore not
the cause of the error.
"""
_METADATA = frozenset(info.alias for info in ObjectMeta.model_fields.values())


def parse(type: type[Resource], object: Object) -> Resource:
    """Parse an object of one of headrace's kinds.

    Unknown fields of its status are dropped: a newer version or a user may have written them, and
    the owner of the status writes it again. Raise ``InvalidObject`` if the object is invalid. There
    are two causes: the custom resource definition in the cluster has another version, or the object
    violates a rule that a definition cannot check.
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


def parse_task(object: Object) -> ReplicationTask:
    """Parse a task, without its partitions if they are invalid.

    A user may have written invalid partitions, such as 5-2. The connector corrects them.
    """
    try:
        return parse(ReplicationTask, object)
    except InvalidSpec:
        return parse(ReplicationTask, object | {"spec": object["spec"] | {"partitions": []}})


def _understood(status: Object, error: ValidationError) -> Object:
    """Return a status without the fields in ``error``, or empty if the error is about all of it."""
    invalid = {one["loc"][1:2] for one in error.errors()}
    if () in invalid:
        return {}
    return {field: value for field, value in status.items() if (field,) not in invalid}


def owner_reference(owner: ReplicationFlow | MirrorTest) -> Object:
    """Return the owner reference of an object that is deleted with its owner."""
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
    """Return True if an object's ``metadata.ownerReferences`` contain this owner.

    Owners are compared by uid. Objects of an earlier owner of that name are being deleted.
    """
    return any(reference.get("uid") == owner.metadata.uid for reference in references or ())


def owns(owner: ReplicationFlow | MirrorTest, object: Object) -> bool:
    """Return True if an object of the API server belongs to this owner (``is_owned``)."""
    return is_owned(object["metadata"].get("ownerReferences"), owner)


def owner_names(object: Object, kind: Kind) -> list[str]:
    """Return the names of an object's owners of a kind."""
    owners = object["metadata"].get("ownerReferences") or ()
    return [owner["name"] for owner in owners if owner["kind"] == kind.name]
