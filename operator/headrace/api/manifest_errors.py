"""Mistakes in a manifest as sentences that name the field."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

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
        """Description of the field in one line."""
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


Key = str | int

_SECRET = {"config", "data", "stringData", "password"}
"""Fields whose values are never shown: they are passwords, or may be one by mistake."""

_MAPPING = {"model_type", "model_attributes_type", "dict_type"}
_WRONG_TYPE = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text (in quotes, where it looks like something else)",
    "tuple_type": "must be a list",
} | dict.fromkeys(_MAPPING, "must be a mapping, with a line for each key")
_SENTENCES = _WRONG_TYPE | {
    "rule": "{allowed}",
    "missing": "is required",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
}
"""pydantic's type of error -> what is allowed."""


@dataclass(frozen=True)
class ManifestMistake:
    """One thing that is wrong, in one place."""

    file: Path
    line: int | None
    """None where the file as a whole is meant."""
    path: tuple[Key, ...]
    """The field, in the manifest's spelling: ``("spec", "chaos", 0, "atPercent")``."""
    allowed: str
    """Allowed values, or the problem."""
    given: str | None = None
    """Given value as in a manifest; None if it is not informative or is a secret."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        field = f"{path_text(self.path)}: " if self.path else ""
        given = f"got {self.given}, " if self.given is not None else ""
        return f"{where}: {field}{given}{self.allowed}"


def path_text(path: Sequence[Key]) -> str:
    """``("spec", "chaos", 0, "atPercent")`` -> ``spec.chaos[0].atPercent``."""
    plain = (f".{key}" if re.fullmatch(r"[^\W\d]\w*", str(key)) else f"[{key}]" for key in path)
    return "".join(plain).removeprefix(".")


def format_value(value: object) -> str | None:
    """Return a plain value as in a manifest, cut to a line's length; None for anything else."""
    if not isinstance(value, str | int | float):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f'{text[:76]}..."'


def one_of(words: Sequence[str], given: object = None) -> str:
    """``must be A, B or C``, and which of them a misspelt ``given`` probably meant."""
    *most, last = words
    meant = _nearest(given, words) if isinstance(given, str) else None
    listed = f"{', '.join(most)} or {last}" if most else last
    return f"must be {listed}" + (f"; did you mean {meant}?" if meant else "")


def explain(
    error: ValidationError, kind: type[Model], data: Any
) -> Iterator[tuple[tuple[Key, ...], str, str | None]]:
    """(path, allowed, given) for each thing that pydantic found wrong with ``data``."""
    details = error.errors(include_url=False)
    for detail in details:
        path = detail["loc"]
        inside = (other["loc"] for other in details if len(other["loc"]) > len(path))
        if detail["type"] == "too_short" and any(loc[: len(path)] == path for loc in inside):
            continue  # it is not empty: its items are wrong, and each is reported to be
        if detail["type"] == "default_factory_not_called":
            continue  # it was not reached, for a mistake in a field before it
        yield path, _allowed(detail, kind), _given(detail, data)


def _allowed(detail: ErrorDetails, kind: type[Model]) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return _unknown(detail["loc"], kind)
        case "enum" | "literal_error":
            return one_of(re.findall(r"'(.*?)'", context["expected"]), detail["input"])
        case known if known in _SENTENCES:
            return _SENTENCES[known].format(**context)
        case _:
            return detail["msg"]


def _given(detail: ErrorDetails, data: Any) -> str | None:
    if detail["type"] == "extra_forbidden" or _SECRET & set(detail["loc"]):
        return None
    for key in detail["loc"]:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None  # it is missing
    if isinstance(data, str) and detail["type"] in _MAPPING:
        return "text"  # for example a password where its Secret is to be named
    if isinstance(data, dict | list) and detail["type"] in _WRONG_TYPE:
        return "a mapping" if isinstance(data, dict) else "a list"
    return format_value(data)


_REMOVED: dict[tuple[Key, ...], str] = {
    ("ReplicationFlow", "spec", "mover"): "unknown field; headrace has one mover now, which needs "
    "no setting: remove the field"
}
"""Sentences about fields of earlier releases, by kind and path."""


def _unknown(path: tuple[Key, ...], kind: type[Model]) -> str:
    if removed := _REMOVED.get((kind.__name__, *path)):
        return removed
    *inside, name = path
    around = tuple(key for key in inside if isinstance(key, str))
    known = [field.path for field in fields_of(kind)]
    siblings = [field[-1] for field in known if field[:-1] == around]
    if meant := _nearest(str(name), siblings):
        return f"unknown field; did you mean {path_text((*inside, meant))}?"
    if elsewhere := [path_text(field) for field in known if field[-1] == name]:
        return f"unknown field; did you mean {' or '.join(elsewhere)}?"
    return f"unknown field; known here: {', '.join(siblings)}"


def _nearest(word: str, words: Iterable[str]) -> str | None:
    folded = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.replace("_", "").lower(), folded, n=1)
    return folded[found[0]] if found else None
