"""Generator of docs/reference.md: ``python -m headrace.api.reference > docs/reference.md``."""

import re
import sys
from collections.abc import Iterator

from headrace.api.client_settings import OWNED, OWNED_FAMILIES, SUPPORTED
from headrace.api.cluster import ClusterSpec, TargetClusterSpec
from headrace.api.crds import default_text
from headrace.api.flow import ReplicationFlow
from headrace.api.manifest_errors import FieldAt, Schema, fields_of
from headrace.api.meta import API_VERSION, Condition, ObjectMeta
from headrace.api.mirror_test import MirrorTest
from headrace.api.model import Model
from headrace.api.partitions import TopicPartitions
from headrace.api.task import ReplicationTask

KINDS: tuple[type[Model], ...] = (ReplicationFlow, MirrorTest, ReplicationTask)
SHARED: tuple[type[Model], ...] = (
    ClusterSpec,
    TargetClusterSpec,
    TopicPartitions,
    Condition,
    ObjectMeta,
)
"""Types that several kinds contain. They are described once, and linked."""

INTRODUCTION = f"""\
<!-- Generated from operator/headrace/api by `make generate`: change the types, not this page. -->

# Reference of the manifests

Every field of every kind of `{API_VERSION}`. A manifest is YAML, of one or more
documents; it may also contain Kubernetes' `Secret`. `headrace validate FILE` lists what
is wrong with one. On Kubernetes the CRDs in `crds/` have the same rules: `kubectl apply` refuses a
manifest with the same messages, and `kubectl explain rflow.spec` describes the fields.

A null counts as absent, as in Kubernetes. Durations are whole numbers, with their unit in the name.
Regular expressions are Python's, and are applied to whole names.
"""

KUBERNETES_ONLY = "Kubernetes only."
"""Last sentence in the description of a field for Kubernetes only. Fields inside it are marked in
the table."""

SUPPORTED_SETTINGS = """\
## Settings that are supported

The `config` of a cluster takes the names of Kafka's Java client, or those of librdkafka.
Every other setting is refused.

| Name | Other names | Default | Effect |
|---|---|---|---|
"""
SETTINGS = """\
## Settings that headrace owns

The `config` of a cluster must not contain them, because the guarantees depend on them:
"""


def reference() -> str:
    """Return the whole page, in Markdown."""
    sections = [INTRODUCTION]
    for kind in (*KINDS, *SHARED):
        sections += [f"## {kind.__name__}\n\n{kind.__doc__}\n", _fields(kind)]
    rows = [
        f"| `{one.names[0]}` | {', '.join(f'`{name}`' for name in one.names[1:])} "
        f"| {one.default} | {one.effect} |\n"
        for one in SUPPORTED
    ]
    sections += [
        SUPPORTED_SETTINGS + "".join(rows),
        SETTINGS,
        _list(f"`{name}`: {why}" for name, why in _settings()),
    ]
    return "\n".join(sections)


def _list(lines: Iterator[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _fields(kind: type[Model]) -> str:
    lines = ["| Field | Type | Default | What it is |", "|---|---|---|---|"]
    inherited: set[str | None] = set()
    for base in kind.__bases__:
        if issubclass(base, Model) and base is not Model:
            inherited |= {info.alias for info in base.model_fields.values()}
            lines.insert(0, f"Everything of {_link(base.__name__)}, and:\n")
    only: tuple[str, ...] | None = None
    for field in _described_here(kind):
        if field.path[0] not in inherited:
            name = ".".join(field.path)
            what = _escaped(field.description)
            if what.endswith(KUBERNETES_ONLY):
                only = field.path
            elif only is not None and field.path[: len(only)] == only:
                what = f"{what} {KUBERNETES_ONLY}"
            lines.append(f"| `{name}` | {_type(field)} | {_default(field)} | {what} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Return the text escaped for Markdown. Stars are kept in code."""
    return re.sub(r"(`[^`]*`)|\*", lambda found: found[1] or r"\*", text.replace("<", "&lt;"))


def _link(title: str) -> str:
    return f"[{title}](#{title.lower()})"


def _described_here(kind: type[Model]) -> Iterator[FieldAt]:
    """Yield all fields, except those inside the shared types, which have their own tables."""
    elsewhere: list[tuple[str, ...]] = []
    for field in fields_of(kind):
        if not any(field.path[: len(path)] == path for path in elsewhere):
            yield field
        if _is_shared(field.item):
            elsewhere.append(field.path)


def _is_shared(schema: Schema) -> bool:
    return schema.get("title") in {model.__name__ for model in SHARED}


def _type(field: FieldAt) -> str:
    match field.item:
        case {"title": str(title)} if _is_shared(field.item):
            text = _link(title)
        case {"enum": choices}:
            text = ", ".join(f"`{choice}`" for choice in choices)
        case {"const": value}:
            text = f"`{value}`"
        case {"format": "date-time"}:
            text = "moment (RFC 3339)"
        case {"minimum": low, "maximum": high, "type": name}:
            text = f"{name} from {low} to {high}"
        case {"minimum": low, "type": name}:
            text = f"{name}, at least {low}"
        case {"type": "object", "additionalProperties": {"type": "string"}}:
            text = "mapping of text"
        case {"type": "string"}:
            text = "text"
        case {"type": name}:
            text = str(name)
    return text if field.item is field.schema else f"list of {text}"


def _default(field: FieldAt) -> str:
    if field.required or "const" in field.schema:  # files have to name kind and apiVersion
        return "required"
    value = field.schema.get("default")
    if value is None or isinstance(value, dict):
        return ""
    return f"`{default_text(value)}`"


def _settings() -> Iterator[tuple[str, str]]:
    yield from OWNED.items()
    yield from OWNED_FAMILIES.items()


if __name__ == "__main__":
    sys.stdout.write(reference())
