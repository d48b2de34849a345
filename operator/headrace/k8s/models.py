"""Objects of the API server <-> the types of ``api``."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from headrace.api import MirrorTest, ReplicationFlow, ReplicationTask
from headrace.api.meta import ObjectMeta
from headrace.errors import InvalidSpec
from headrace.k8s.kinds import Object

Resource = TypeVar("Resource", ReplicationFlow, ReplicationTask, MirrorTest)


class InvalidObject(InvalidSpec):
    """An object that this version does not understand."""

    def __init__(self, message: str, fields: Iterable[str]) -> None:
        super().__init__(message)
        self.fields = frozenset(fields)
        """Fields of its spec that are invalid, or that a broken rule blames."""


_RULE = "rule"
"""Of our own: a value that every version refuses, as a bad regular expression."""
_METADATA = frozenset(info.alias for info in ObjectMeta.model_fields.values())


def parse(type: type[Resource], object: Object) -> Resource:
    """An object as one of ours. Of its status only what this version understands: a newer one, and
    anybody who may, write there too, and its owner writes it again.

    Raises ``InvalidObject`` for one that this version does not understand: the definition (CRD) in
    the cluster is then of another version, or it says what a definition cannot check.
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
    """A status without the fields that are named in ``error``; empty where it is named itself."""
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
