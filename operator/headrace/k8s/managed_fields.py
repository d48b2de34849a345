"""Owners of an object's fields, as its managedFields record them.

Fields are nested dicts in the format FieldsV1: ``f:NAME`` is a field, ``k:{...}`` an item of a
list by its keys, ``v:...`` an item by its value, and ``.`` the field or item itself. A field that
only an admission webhook set has no owner.
"""

import json
from collections.abc import Iterator
from typing import Any

from headrace.k8s.kinds import Object, Objects

Fields = dict[str, Any]

_RESTARTED_AT: Fields = {
    "f:template": {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}}}}
}
"""Field that ``kubectl rollout restart`` sets in a spec."""


def applied_fields(object: Object | None, manager: str) -> Fields:
    """Return the fields that ``manager`` owns by server-side apply."""
    entries = _entries(object or {"metadata": {}})
    return next((_fields(entry) for entry in entries if _applies(entry, manager)), {})


def foreign_fields(object: Object, manager: str) -> dict[str, Fields]:
    """Return the fields of the spec that other managers added, by manager.

    ``manager`` owns the spec by server-side apply. A restart by kubectl does not count.
    """
    ours = _merged(applied_fields(object, manager), {"f:spec": _RESTARTED_AT})
    found: dict[str, Fields] = {}
    for entry in _entries(object):
        spec = {name: fields for name, fields in _fields(entry).items() if name == "f:spec"}
        if not _applies(entry, manager) and (foreign := missing_fields(spec, ours)):
            found[entry["manager"]] = _merged(found.get(entry["manager"], {}), foreign)
    return found


def owners(object: Object, fields: Fields) -> list[str]:
    """Return the managers that own any of these fields."""
    return [entry["manager"] for entry in _entries(object) if _overlap(_fields(entry), fields)]


def take_over(object: Object, manager: str) -> Objects:
    """Return managedFields in which ``manager`` owns the foreign fields.

    The next apply by ``manager`` deletes them, because its manifest does not contain them.
    """
    foreign: Fields = {}
    for fields in foreign_fields(object, manager).values():
        foreign = _merged(foreign, fields)
    before = applied_fields(object, manager)
    ours = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": object["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": _with_items(_merged(before, foreign), before),
    }
    others = [entry for entry in _entries(object) if not _applies(entry, manager)]
    kept = [entry | {"fieldsV1": missing_fields(_fields(entry), foreign)} for entry in others]
    return [ours, *(entry for entry in kept if entry["fieldsV1"])]


def missing_fields(fields: Fields, others: Fields) -> Fields:
    """Return the fields that ``others`` does not contain."""
    left: Fields = {}
    for key, children in fields.items():
        if key not in others:
            left[key] = children
        elif key != "." and (rest := missing_fields(children, others[key] | {".": {}})):
            left[key] = rest
    return left


def extract(value: Any, fields: Fields) -> Any:
    """Return the parts of a value that ``fields`` contains."""
    if not (nested := {key: one for key, one in fields.items() if key != "."}):
        return value
    if isinstance(value, list):
        return list(_extract_items(value, nested))
    names = {key.removeprefix("f:"): one for key, one in nested.items()}
    return {name: extract(value[name], names[name]) for name in value if name in names}


def _extract_items(items: list[Any], fields: Fields) -> Iterator[Any]:
    for item in items:
        for key, nested in fields.items():
            wanted = json.loads(key[2:])
            if key.startswith("v:"):
                if item == wanted:
                    yield item
            elif wanted.items() <= item.items():
                yield extract(item, nested)


def _entries(object: Object) -> Objects:
    return object["metadata"].get("managedFields") or []


def _fields(entry: Object) -> Fields:
    return entry.get("fieldsV1") or {}


def _applies(entry: Object, manager: str) -> bool:
    by = entry["manager"], entry["operation"], entry.get("subresource", "")
    return by == (manager, "Apply", "")


def _merged(fields: Fields, others: Fields) -> Fields:
    return fields | {key: _merged(fields.get(key, {}), one) for key, one in others.items()}


def _with_items(fields: Fields, before: Fields) -> Fields:
    """Return ``fields``, in which each list item that ``before`` lacks is owned as a whole.

    The next apply deletes the owned fields and items. Another manager may own only some fields of
    an item that a webhook added. If only these were deleted, an invalid item would remain.
    """
    made: Fields = {}
    for key, nested in fields.items():
        itself: Fields = {".": {}} if key.startswith("k:") and key not in before else {}
        made[key] = itself | _with_items(nested, before.get(key, {}))
    return made


def _overlap(fields: Fields, others: Fields) -> bool:
    return any(
        not one or not others[key] or _overlap(one, others[key])
        for key, one in fields.items()
        if key in others and key != "."
    )
