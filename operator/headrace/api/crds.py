"""The CustomResourceDefinitions, out of the types: ``python -m headrace.api.crds FOLDER ...``.

They are written into every folder that is named, a file a kind.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace import __version__
from headrace.api.flow import ReplicationFlow
from headrace.api.meta import API_VERSION, LONGEST_NAME
from headrace.api.mirror_test import MirrorTest
from headrace.api.model import Model
from headrace.api.structural import structural_schema
from headrace.api.task import ReplicationTask

HEADER = """\
# Generated from operator/headrace/api by `make generate`: change the types, not this file.
# Needs Kubernetes 1.32 or later.
"""


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``."""

    name: str
    path: str
    """JSON path from the object."""
    type: str = "string"
    wide: bool = False
    """With ``-o wide`` only."""

    def manifest(self) -> dict[str, Any]:
        """As the definition has it."""
        wide = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **wide}


def _count(name: str, path: str, wide: bool = False) -> Column:
    return Column(name, path, "integer", wide)


def _ready(field: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{field}'


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class Resource:
    """A kind, and how Kubernetes is to serve it."""

    kind: type[Model]
    short_name: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    """Fields for ``--field-selector`` and for watches of a part."""
    scale: dict[str, str] | None = None
    """Paths of the scale subresource."""
    longest_name: int | None = None

    @property
    def plural(self) -> str:
        """Name in URLs, and for ``kubectl``."""
        return f"{self.kind.__name__.lower()}s"

    @property
    def name(self) -> str:
        """Name of the definition."""
        return f"{self.plural}.{API_VERSION.partition('/')[0]}"


FLOWS = Resource(
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
    longest_name=LONGEST_NAME,
)
TESTS = Resource(
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
    longest_name=LONGEST_NAME,
)
TASKS = Resource(
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


def definition(resource: Resource) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
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
    """Name of the file -> its text, for each kind."""
    return {
        f"{API_VERSION.partition('/')[0]}_{resource.plural}.yaml": HEADER
        + yaml.dump(definition(resource), Dumper=_Dumper, sort_keys=False, width=100)
        for resource in RESOURCES
    }


class _Dumper(yaml.SafeDumper):
    """Writes for readers: no aliases, and no quotes around text full of quotes."""

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
