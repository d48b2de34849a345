"""The tree of fields of a kind, out of its JSON schema: for suggestions and for the reference."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.api.model import Model

Schema = dict[str, Any]


@dataclass(frozen=True)
class FieldAt:
    """A field and where it stands in a manifest."""

    path: tuple[str, ...]
    """Names in the manifest's spelling; being an item of a list adds nothing."""
    schema: Schema
    """JSON schema of the value, references resolved one level down."""
    item: Schema
    """The same for each item where the value is a list, else ``schema`` itself."""
    required: bool

    @property
    def description(self) -> str:
        """What the field is for, in one line."""
        return " ".join(self.schema.get("description", "").split())


@cache
def fields_of(kind: type[Model]) -> tuple[FieldAt, ...]:
    """Return every field of ``kind``, each followed by those inside it.

    A schema takes a second to generate, so it is generated once.
    """
    schema = kind.model_json_schema()
    return tuple(_walk(schema, schema.get("$defs", {}), ()))


def _walk(parent: Schema, types: dict[str, Schema], path: tuple[str, ...]) -> Iterator[FieldAt]:
    for name, written in parent.get("properties", {}).items():
        schema = resolve(written, types)
        item = resolve(schema["items"], types) if "items" in schema else schema
        here = (*path, name)
        yield FieldAt(here, schema, item, name in parent.get("required", ()))
        yield from _walk(item, types, here)


def resolve(schema: Schema, types: dict[str, Schema]) -> Schema:
    """Without ``$ref`` and without the null of an optional field; what is written here wins."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        schema = choices[0] | {key: value for key, value in schema.items() if key != "anyOf"}
    if "$ref" in schema:
        schema = types[schema["$ref"].removeprefix("#/$defs/")] | schema
    return schema
