"""Conversion of manifests of ``headrace.dev/v1alpha1``."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from headrace.api import API_VERSION
from headrace.api.manifest_errors import Key
from headrace.convert.result import Converted, Note

OLD_VERSION = "headrace.dev/v1alpha1"

_NESTED = {
    "delivery": ("mode", {"commitIntervalMs": "commitIntervalMs"}),
    "offsets": ("mode", {"holes": "holes"}),
    "onRecordError": ("action", {"deadLetterTopic": "deadLetterTopic"}),
    "startFrom": ("mode", {"startTimestamp": "timestamp"}),
}
"""Fields of v1alpha1 that are mappings now.

The first value is the name that the old value gets in the mapping. The second value contains other
old fields that move into the mapping, with their names there.
"""
_SWITCHES = ("topicConfigs", "acls")
_BY_SERVER = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "ownerReferences",
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def convert_manifest(
    data: Mapping[str, Any],
    lines: Mapping[tuple[Key, ...], int],
    path: tuple[Key, ...],
    line: int,
) -> Converted:
    """Return an object in the current API version, without the fields that the API server sets.

    Args:
        data: The object.
        lines: Line of each value in its document.
        path: Path of the object in its document.
        line: Line where the object begins.
    """
    metadata = dict(data.get("metadata") or {})
    created = metadata.get("creationTimestamp")
    for field in _BY_SERVER:
        metadata.pop(field, None)
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(_LAST_APPLIED, None)
    if annotations:
        metadata["annotations"] = annotations
    spec, notes = deepcopy(data.get("spec")), []
    if data["kind"] == "ReplicationFlow" and isinstance(spec, dict):
        mover_line = lines.get((*path, "spec", "mover"), line)
        spec = _flow_spec(spec, created)
        notes = list(_mover(spec, mover_line))
    document = {"apiVersion": API_VERSION, "kind": data["kind"], "metadata": metadata}
    return Converted(document | {"spec": spec}, tuple(notes), line)


def _flow_spec(spec: dict[str, Any], created: object) -> dict[str, Any]:
    new: dict[str, Any] = {}
    moved = {old for _, inside in _NESTED.values() for old in inside}
    for field, value in spec.items():
        if field in _NESTED and not isinstance(value, dict):
            new.setdefault(field, {})[_NESTED[field][0]] = value
        elif field in moved:
            outer, inner = next(
                (outer, inside[field]) for outer, (_, inside) in _NESTED.items() if field in inside
            )
            new.setdefault(outer, {})[inner] = value
        elif field == "policy":
            new["replicationPolicy"] = value
        elif field in _SWITCHES and isinstance(value, dict):
            new[field] = {("enabled" if name == "sync" else name): v for name, v in value.items()}
        else:
            new[field] = value
    start = new.get("startFrom")
    if created and start == {"mode": "Latest"}:
        # Latest begins at the creation of the object. The converted object will be created later.
        new["startFrom"] = {"mode": "Timestamp", "timestamp": created}
    return new


def _mover(spec: dict[str, Any], line: int) -> list[Note]:
    if "mover" not in spec:
        return []
    setting = f"spec.mover: {spec.pop('mover')}"
    return [Note(line, setting, "headrace has one mover now, which needs no setting")]
