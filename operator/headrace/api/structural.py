"""Types -> the structural schemas that a CustomResourceDefinition asks for.

What differs from pydantic's own JSON schema: nothing is referred to, each field says its default in
words (an object in the cluster keeps only what somebody wrote), and lists say how they are applied.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from headrace.api.extensions import REQUIRED, RULES, SERVER_DEFAULT
from headrace.api.fields import Schema, resolve
from headrace.api.model import Model

_COPIED = (
    "type",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
_RULE = ("rule", "message", "fieldPath", "reason")
"""Keys of a rule, in the order of reading; pydantic sorts by name."""
_LONGEST_WORD = 316
"""Of what a status says in one word; Kubernetes' limit for the type of a condition."""

Types = dict[str, Schema]
"""The types that are referred to, by name."""


def structural_schema(kind: type[Model]) -> Schema:
    """The ``openAPIV3Schema`` of ``kind``."""
    schema = kind.model_json_schema()
    schema["properties"]["metadata"] = {"type": "object"}  # the API server knows the rest
    schema["required"] = [name for name in schema["required"] if name != "metadata"]
    for name in ("apiVersion", "kind"):
        schema["properties"][name] = {
            "description": schema["properties"][name]["description"],
            "type": "string",
        }
    return _structural(schema, schema.pop("$defs", {}))


def _structural(written: Schema, types: Types, in_status: bool = False) -> Schema:
    schema = resolve(written, types)
    if "x-kubernetes-int-or-string" in schema:
        schema = {key: value for key, value in schema.items() if key != "type"}
    text = " ".join(_description(schema, in_status))
    return {
        **({"description": text} if text else {}),
        **{key: schema[key] for key in _COPIED if key in schema},
        **_value(schema, in_status),
        **_inside(schema, types, in_status),
        **_extensions(schema),
    }


def _value(schema: Schema, in_status: bool) -> Schema:
    """What a single value may be."""
    made: Schema = {}
    if schema.get("type") == "integer":
        made["format"] = "int64"
    if schema.get(SERVER_DEFAULT):
        made["default"] = {} if schema["type"] == "object" else schema["default"]
    if "enum" in schema and in_status:
        # Open: an operator that is newer than these definitions may know another word.
        made["maxLength"] = _LONGEST_WORD
    elif "enum" in schema:
        made["enum"] = schema["enum"]
    return made


def _inside(schema: Schema, types: Types, in_status: bool) -> Schema:
    """What a list, an object or a mapping holds."""
    match schema:
        case {"items": item}:
            return {
                "items": _structural(item, types, in_status),
                "x-kubernetes-list-type": "atomic",
            }
        case {"properties": fields}:
            properties = {
                name: _structural(field, types, in_status or name == "status")
                for name, field in fields.items()
            }
            marked = [name for name, field in fields.items() if REQUIRED in field]
            required = [*schema.get("required", ()), *marked]
            return {"properties": properties, **({"required": required} if required else {})}
        case {"additionalProperties": dict(value)}:
            values = _structural(value, types, in_status)
            if not values:  # as Kubernetes defines it: its own API server checks it later
                return {"x-kubernetes-preserve-unknown-fields": True}
            return {"additionalProperties": values}
    return {}


def _extensions(schema: Schema) -> Schema:
    """What ``extensions`` added; it wins."""
    made = {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if RULES in made:
        made[RULES] = [{key: rule[key] for key in _RULE if key in rule} for rule in made[RULES]]
    return made


def _description(schema: Schema, in_status: bool) -> Iterator[str]:
    if text := " ".join(schema.get("description", "").split()):
        yield text
    if "enum" in schema and in_status:
        yield f"One of {', '.join(schema['enum'])}."
    default = schema.get("default")
    if default not in (None, "", []) and not isinstance(default, dict) and not in_status:
        yield f"Default: {default_text(default)}."


def default_text(default: Any) -> str:
    """A default as one would write it in a manifest, in one line."""
    return yaml.safe_dump([default], default_flow_style=True, width=10_000).strip()[1:-1]
