"""Errors in a manifest, as sentences that name the field."""

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
    """A field and its path in a manifest."""

    path: tuple[str, ...]
    """Names in the manifest's spelling. Items of a list add no element."""
    schema: Schema
    """JSON schema of the value. References are resolved one level deep."""
    item: Schema
    """Schema of each item if the value is a list, otherwise ``schema``."""
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
    """Return a schema without ``$ref`` and without the null of an optional field.

    Keys of the schema take precedence over keys of the referenced type.
    """
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        schema = choices[0] | {key: value for key, value in schema.items() if key != "anyOf"}
    if "$ref" in schema:
        schema = types[schema["$ref"].removeprefix("#/$defs/")] | schema
    return schema


Key = str | int

_SECRET = {"config", "data", "stringData", "password"}
"""Fields whose values are never shown, because they contain passwords, or may contain one by
mistake."""

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
"""Allowed values by pydantic's type of error."""


@dataclass(frozen=True)
class ManifestMistake:
    """One error at one position."""

    file: Path
    line: int | None
    """Line of the error, or None if it concerns the whole file."""
    path: tuple[Key, ...]
    """Field in the manifest's spelling, such as ``("spec", "chaos", 0, "atPercent")``."""
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
    """Return ``spec.chaos[0].atPercent`` for ``("spec", "chaos", 0, "atPercent")``."""
    plain = (f".{key}" if re.fullmatch(r"[^\W\d]\w*", str(key)) else f"[{key}]" for key in path)
    return "".join(plain).removeprefix(".")


def format_value(value: object) -> str | None:
    """Return text or a number as in a manifest, on one short line, or None for other values."""
    if not isinstance(value, str | int | float):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f'{text[:76]}..."'


def one_of(words: Sequence[str], given: object = None) -> str:
    """Return ``must be A, B or C``, and the choice that a misspelt ``given`` probably meant."""
    *most, last = (word or '""' for word in words)
    meant = _nearest(given, words) if isinstance(given, str) else None
    listed = f"{', '.join(most)} or {last}" if most else last
    return f"must be {listed}" + (f"; did you mean {meant}?" if meant else "")


def explain(
    error: ValidationError, kind: type[Model], data: Any
) -> Iterator[tuple[tuple[Key, ...], str, str | None]]:
    """Yield path, allowed values and given value for each error of pydantic in ``data``."""
    details = error.errors(include_url=False)
    for detail in details:
        path = detail["loc"]
        inside = (other["loc"] for other in details if len(other["loc"]) > len(path))
        if detail["type"] == "too_short" and any(loc[: len(path)] == path for loc in inside):
            continue  # the list has items, and their own errors are reported
        if detail["type"] == "default_factory_not_called":
            continue  # a field before this one is wrong
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
            return None  # the value is missing
    if isinstance(data, str) and detail["type"] in _MAPPING:
        return "text"  # for example a password where its Secret is to be named
    if isinstance(data, dict | list) and detail["type"] in _WRONG_TYPE:
        return "a mapping" if isinstance(data, dict) else "a list"
    return format_value(data)


_MAX_SUGGESTIONS = 5
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
    elsewhere = [field for field in known if field[-1] == name]
    below = [field for field in elsewhere if field[: len(around)] == around]
    if 0 < len(likely := below or elsewhere) <= _MAX_SUGGESTIONS:
        return f"unknown field; did you mean {' or '.join(map(path_text, likely))}?"
    return f"unknown field; known here: {', '.join(siblings)}"


def _nearest(word: str, words: Iterable[str]) -> str | None:
    folded = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.replace("_", "").lower(), folded, n=1)
    return folded[found[0]] if found else None
