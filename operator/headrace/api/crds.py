"""CustomResourceDefinitions, written by ``python -m headrace.api.crds FOLDER ...``.

Each folder gets one file for each kind.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace import __version__
from headrace.api.flow import ReplicationFlow
from headrace.api.manifest_errors import Schema, resolve
from headrace.api.meta import API_VERSION, MAX_NAME_LENGTH
from headrace.api.mirror_test import MirrorTest
from headrace.api.model import REQUIRED, RULES, SERVER_DEFAULT, Model
from headrace.api.task import ReplicationTask

# Converts types to the structural schemas that a CustomResourceDefinition requires. These differ
# from pydantic's own JSON schema: they have no references, each field states its default in words
# (an object in the cluster has only what was written), and lists state how they are merged.

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
"""Keys of a rule in reading order. pydantic sorts them by name."""
_MAX_WORD_LENGTH = 316
"""Maximum length of a status word; Kubernetes' limit for the type of a condition."""

Types = dict[str, Schema]
"""Referenced types by name."""


def structural_schema(kind: type[Model]) -> Schema:
    """Return the ``openAPIV3Schema`` of ``kind``."""
    schema = kind.model_json_schema()
    schema["properties"]["metadata"] = {"type": "object"}  # the API server defines the rest
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
    """Return the restrictions of a single value."""
    made: Schema = {}
    if schema.get("type") == "integer":
        made["format"] = "int64"
    if schema.get(SERVER_DEFAULT):
        made["default"] = {} if schema["type"] == "object" else schema["default"]
    if "enum" in schema and in_status:
        # No enum, because an operator that is newer than the definition may write other words.
        made["maxLength"] = _MAX_WORD_LENGTH
    elif "enum" in schema:
        made["enum"] = schema["enum"]
    return made


def _inside(schema: Schema, types: Types, in_status: bool) -> Schema:
    """Return the schema of the contents of a list, an object or a mapping."""
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
            if not values:  # for example a volume, which the API server checks in the pod
                return {"x-kubernetes-preserve-unknown-fields": True}
            return {"additionalProperties": values}
    return {}


def _extensions(schema: Schema) -> Schema:
    """Return the keys ``x-kubernetes-*`` of a schema, which replace keys of the other functions."""
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
    """Return a default as in a manifest, on one line."""
    return yaml.safe_dump([default], default_flow_style=True, width=10_000).strip()[1:-1]


HEADER = """\
# Generated from operator/headrace/api by `make generate`: change the types, not this file.
# Needs Kubernetes 1.32 or later.
"""


@dataclass(frozen=True)
class Column:
    """A column of the output of ``kubectl get``."""

    name: str
    path: str
    """JSON path, relative to the object."""
    type: str = "string"
    wide: bool = False
    """Whether the column is shown only with ``-o wide``."""

    def manifest(self) -> dict[str, Any]:
        """Return the column as in the definition."""
        wide = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **wide}


def _count(name: str, path: str, wide: bool = False) -> Column:
    return Column(name, path, "integer", wide)


def _ready(field: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{field}'


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class CustomResource:
    """A kind, with the settings of its CustomResourceDefinition."""

    kind: type[Model]
    short_name: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    """Fields that ``--field-selector`` and filtered watches support."""
    scale: dict[str, str] | None = None
    """Paths of the scale subresource."""
    longest_name: int | None = None

    @property
    def plural(self) -> str:
        """Name of the kind in URLs and in ``kubectl``."""
        return f"{self.kind.__name__.lower()}s"

    @property
    def name(self) -> str:
        """Name of the definition."""
        return f"{self.plural}.{API_VERSION.partition('/')[0]}"


FLOWS = CustomResource(
    ReplicationFlow,
    "rflow",
    (
        Column("Ready", _ready("status")),
        Column("Reason", _ready("reason")),
        _count("Tasks", ".status.tasks.total"),
        _count("Running", ".status.tasks.running"),
        _count("Failed", ".status.tasks.failed"),
        _count("Lag", ".status.lag.records"),
        _count("Lag-Seconds", ".status.lag.seconds"),
        _count("Drivers", ".status.readyReplicas"),
        _count("Desired", ".status.desiredReplicas"),
        AGE,
        Column("State", ".spec.state", wide=True),
        Column("Source", ".spec.source.alias", wide=True),
        Column("Target", ".spec.target.alias", wide=True),
        _count("Topics", ".status.topics", wide=True),
        _count("Partitions", ".status.partitions", wide=True),
        _count("Bytes/s", ".status.bytesPerSecond", wide=True),
        Column("Message", _ready("message"), wide=True),
    ),
    scale={
        "specReplicasPath": ".spec.drivers.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
    longest_name=MAX_NAME_LENGTH,
)
TESTS = CustomResource(
    MirrorTest,
    "mtest",
    (
        Column("Flow", ".spec.flowName"),
        Column("Phase", ".status.phase"),
        Column("Verdict", ".status.verdict"),
        Column("Ready", _ready("status")),
        Column("Reason", _ready("reason")),
        _count("Acknowledged", ".status.counts.acknowledged"),
        _count("Missing", ".status.counts.missing"),
        _count("Duplicated", ".status.counts.duplicated"),
        _count("P99-Ms", ".status.latencyMs.p99"),
        AGE,
        _count("Reordered", ".status.counts.reordered", wide=True),
        _count("Corrupted", ".status.counts.corrupted", wide=True),
        _count("Alien", ".status.counts.alien", wide=True),
        _count("Unequal-Offsets", ".status.counts.unequalOffsets", wide=True),
        Column("Schedule", ".spec.schedule", wide=True),
        Column("Last-Schedule", ".status.lastScheduleTime", "date", wide=True),
        Column("Report", ".status.report", wide=True),
        Column("Message", _ready("message"), wide=True),
    ),
    selectable=(".spec.flowName", ".status.phase", ".status.verdict"),
    longest_name=MAX_NAME_LENGTH,
)
TASKS = CustomResource(
    ReplicationTask,
    "rtask",
    (
        Column("Flow", ".spec.flowName"),
        Column("Type", ".spec.type"),
        Column("Phase", ".status.phase"),
        Column("Driver", ".status.driverName"),
        _count("Lag", ".status.lag.records"),
        _count("Lag-Seconds", ".status.lag.seconds"),
        _count("Restarts", ".status.restarts"),
        Column("Error", ".status.lastError.reason"),
        AGE,
        Column("Assigned", ".spec.driverName", wide=True),
        _count("Epoch", ".status.epoch", wide=True),
        _count("Bytes/s", ".status.bytesPerSecond", wide=True),
        Column("Message", ".status.lastError.message", wide=True),
    ),
    # A driver watches the units that it holds and those that it is to hold.
    selectable=(
        ".spec.flowName",
        ".spec.type",
        ".spec.driverName",
        ".status.driverName",
        ".status.phase",
    ),
)
RESOURCES = (FLOWS, TESTS, TASKS)


def definition(resource: CustomResource) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one kind."""
    group, version = API_VERSION.split("/")
    kind = resource.kind.__name__
    schema = structural_schema(resource.kind)
    if resource.longest_name:
        named = {"name": {"type": "string", "maxLength": resource.longest_name}}
        schema["properties"]["metadata"]["properties"] = named
    selectable = [{"jsonPath": path} for path in resource.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.name,
            "labels": {
                "app.kubernetes.io/name": "headrace",
                "app.kubernetes.io/version": __version__,
            },
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
                "shortNames": [resource.short_name],
                "categories": ["headrace"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}}
                    | ({"scale": resource.scale} if resource.scale else {}),
                    "additionalPrinterColumns": [column.manifest() for column in resource.columns],
                    **({"selectableFields": selectable} if selectable else {}),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def files() -> dict[str, str]:
    """Return the text of each kind's file, by file name."""
    return {
        f"{API_VERSION.partition('/')[0]}_{resource.plural}.yaml": HEADER
        + yaml.dump(definition(resource), Dumper=_Dumper, sort_keys=False, width=100)
        for resource in RESOURCES
    }


class _Dumper(yaml.SafeDumper):
    """YAML writer without aliases, and without quotes around text full of quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    quoted = "'" in text and (": " in text or text[0] in "!'")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=">" if quoted else None)


_Dumper.add_representer(str, _text)


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        for name, text in files().items():
            (folder / name).write_text(text)
