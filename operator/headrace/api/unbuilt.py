"""What a manifest may ask for and this version does not do yet.

Such a value is refused by ``headrace run`` and by the operator; no default
is one. What only Kubernetes uses (drivers.resources, drivers.podTemplate, schedule, spark ...) is
not refused: standalone has no use for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args

from pydantic_core import PydanticUndefined

from headrace.api.extensions import Rule
from headrace.api.flow import ReplicationFlow, ReplicationFlowSpec
from headrace.api.mistakes import Key, path_text
from headrace.api.model import Model


@dataclass(frozen=True)
class When:
    """In which flows a value is not built."""

    words: str
    rule: str
    """The same in CEL, of a spec."""
    holds: Callable[[ReplicationFlowSpec], bool]


@dataclass(frozen=True)
class Part:
    """A field below spec, in Python's spelling, of which not every value is built."""

    field: str
    built: tuple[object, ...] = ()
    """The values that are built, or that ask for nothing."""
    when: When | None = None
    """The others are not built only then."""


FLOW: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Unbuilt:
    """What one object asks for in vain."""

    refused: tuple[str, ...]
    """A sentence for each value that was chosen and has to be changed."""
    places: tuple[tuple[Key, ...], ...] = field(default=(), compare=False)
    """The field of each of ``refused``."""


def unbuilt(flow: ReplicationFlow) -> Unbuilt:
    """What ``flow`` asks for that this version does not do."""
    refused: list[tuple[str, tuple[Key, ...]]] = []
    for part in FLOW:
        if part.when is not None and not part.when.holds(flow.spec):
            continue
        for asked in _values(flow.spec, part.field):
            if asked.value not in part.built:
                refused.append((_sentence(asked, part), asked.path))
    sentences, places = zip(*refused, strict=True) if refused else ((), ())
    return Unbuilt(sentences, places)


def unbuilt_rules() -> Iterator[Rule]:
    """What the API server can refuse of a flow: single values, from the spec. Of what is below
    lists, the status says so."""
    for part in FLOW:
        default = _default(ReplicationFlow.model_fields["spec"].annotation, part.field)
        allowed = {*part.built, default} - {PydanticUndefined}
        path = _camel(part.field)
        values = sorted(allowed, key=str)
        rule = f"{_at(path, values[0])} in [{', '.join(map(_cel, values))}]"
        built = " or ".join(words(part.built)) or _word(next(iter(allowed)))
        sentence = f"must be {built}: nothing else is built yet"
        if part.when is not None:
            rule = f"!({part.when.rule}) || {rule}"
            sentence = f"{sentence} with {part.when.words}"
        yield Rule(rule, sentence, at=path)


def _default(spec: Any, path: str) -> object:
    """Of a field below the type ``spec``; ``PydanticUndefined`` without one."""
    *above, last = path.split(".")
    for name in above:
        annotation = spec.model_fields[name].annotation
        spec = next((one for one in get_args(annotation) if one is not NoneType), annotation)
    return spec.model_fields[last].get_default(call_default_factory=True)


def _camel(path: str) -> str:
    first, *rest = path.split("_")
    return first + "".join(word.capitalize() if word[0] != "." else word for word in rest)


def _at(path: str, absent: object) -> str:
    return f"self.?{path.replace('.', '.?')}.orValue({_cel(absent)})"


def _cel(value: object) -> str:
    return _word(value) if isinstance(value, bool) else f"'{value}'"


@dataclass(frozen=True)
class _Value:
    path: tuple[Key, ...]
    value: object

    @property
    def where(self) -> str:
        return path_text(self.path)


def _values(spec: Model, field: str) -> list[_Value]:
    """The field's value, or one for each item of a list on the way; none inside what is absent."""
    return list(_walk(spec, field.split("."), ("spec",)))


def _walk(model: Model, names: list[str], path: tuple[Key, ...]) -> Iterator[_Value]:
    name, *rest = names
    info = type(model).model_fields[name]
    value = getattr(model, name)
    here = (*path, info.alias or name)
    if not rest:
        yield _Value(here, value)
    elif isinstance(value, Model):
        yield from _walk(value, rest, here)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _walk(item, rest, (*here, index))


def _sentence(asked: _Value, part: Part) -> str:
    built = part.built
    value = f": {_word(asked.value)}" if isinstance(asked.value, str | int | float) else ""
    instead = f"use {' or '.join(words(built))}" if words(built) else "leave it out"
    where = f" with {part.when.words}" if part.when is not None else ""
    return f"{asked.where}{value} is not built yet{where}; {instead}"


def words(values: tuple[object, ...]) -> list[str]:
    """Those of ``values`` that can be written in a manifest, as they are written there."""
    return [_word(value) for value in values if isinstance(value, str | int)]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
