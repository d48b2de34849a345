"""Objects of the API server <-> the types of ``api``."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from headrace.api import MirrorTest, ReplicationFlow, ReplicationTask
from headrace.api.meta import ObjectMeta
from headrace.api.model import Model
from headrace.errors import InvalidSpec
from headrace.k8s.kinds import Object

Resource = TypeVar("Resource", ReplicationFlow, ReplicationTask, MirrorTest)

_METADATA = frozenset(info.alias for info in ObjectMeta.model_fields.values())


def parse(type: type[Resource], object: Object) -> Resource:
    """An object as one of ours.

    Raises ``InvalidSpec`` for one that this version does not understand: the definition (CRD) in
    the cluster is then of another version, for it lets only such objects in.
    """
    metadata = {
        key: value
        for key, value in object["metadata"].items()
        if key in _METADATA and key != "managedFields"
    }
    try:
        return type.model_validate(object | {"metadata": metadata})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidSpec(
            f"{type.__name__} {metadata['name']} in namespace {metadata.get('namespace')} is not "
            f"understood: {where}: {first['msg']}. Its definition (CRD) and this program are of "
            "different versions: apply the definitions that belong to it"
        ) from error


def dump(model: Model) -> Object:
    """As JSON has it; what nobody set stays unset."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


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
