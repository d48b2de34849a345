"""Base class and scalar types of all manifests.

Fields are snake_case in Python and camelCase in a manifest. The fields that a user wrote stay known
(pydantic's ``model_fields_set``): defaults are filled in on reading, never written back.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

# The docstrings below a type's fields are the fields' descriptions in schemas and pages. pydantic's
# ``use_attribute_docstrings`` reads them whenever a type is defined: reading the source was a fifth
# of a process's start-up time, and only the writers of schemas need descriptions.


def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the docstrings of a type's fields, including inherited ones, by name.

    The result is empty if the source is not installed.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("headrace."):
            found |= dict(_below_fields(base))
    return found


def _below_fields(cls: type) -> Iterator[tuple[str, str]]:
    try:
        source = inspect.getsource(cls)
    except OSError:
        return
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    for statement, below in pairwise(definition.body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                yield name, inspect.cleandoc(text)


# Rules of a value that only Kubernetes' schemas can state, written next to the type. They are
# annotations of fields, and the ``rules`` of a type. Reading a manifest ignores them;
# ``structural`` finds them again in the JSON schema.

RULES: Final = "x-kubernetes-validations"
SERVER_DEFAULT: Final = "x-headrace-server-default"
REQUIRED: Final = "x-headrace-required"


@dataclass(frozen=True)
class Extension:
    """Keys of a schema that pydantic does not support."""

    keys: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(core_schema), **self.keys}


@dataclass(frozen=True)
class Rule:
    """A rule in CEL that the API server checks before it accepts an object."""

    cel: str
    """Expression that is true for valid values. ``self`` is the new value, ``oldSelf`` the previous
    one."""
    allowed: str
    """Allowed values, to follow the name of a field, such as ``must be at least 1``."""
    at: str = ""
    """Path of the invalid field, relative to the value with the rule, such as ``target.alias``."""
    reason: Literal["FieldValueRequired", "FieldValueForbidden"] | None = None
    """Kubernetes' reason for the refusal, which ``kubectl`` shows. None means an invalid value."""

    def as_schema(self) -> dict[str, str]:
        """Return an item of ``x-kubernetes-validations``."""
        schema = {"rule": self.cel, "message": self.allowed}
        if self.at:
            schema["fieldPath"] = f".{self.at}"
        if self.reason:
            schema["reason"] = self.reason
        return schema


INT_OR_STRING: Final = Extension({"x-kubernetes-int-or-string": True})
BY_TYPE: Final = Extension(
    {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)
"""Extension of a list whose items are applied separately, so that each may have its own writer."""
BY_PARTITION: Final = Extension(
    {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topic", "partition"]}
)
"""Extension of a list of partitions. The API server refuses a partition that is listed twice."""
REQUIRED_BY_SERVER: Final = Extension({REQUIRED: True})
"""Extension of a field that the API server requires. In memory it is optional: the writer of an
object sets it last, and objects of an earlier version may lack it."""
FILLED_IN_BY_SERVER: Final = Extension({SERVER_DEFAULT: True})
"""Extension of a default that the API server writes into the object, because Kubernetes reads it
there. All other defaults are filled in on reading, so that the fields that a user set stay
known."""


@dataclass(frozen=True)
class Once:
    """Rule that no two items of a list have the same values in ``fields``.

    Without ``fields``, no two items may be equal.
    """

    fields: tuple[str, ...] = ()
    """Fields in the manifest's spelling."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if not self.fields:
            return {**handler(schema), "x-kubernetes-list-type": "set"}
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*self.fields]}
        return {**handler(schema), **keys}

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen = set()
        for item in items:
            values = item.model_dump(mode="json", by_alias=True) if self.fields else {}
            name = ", ".join(str(values[field]) for field in self.fields) if values else item
            if name in seen:
                raise refusal(f"must not name {name} twice")
            seen.add(name)
        return items


BY_NAME: Final = Once(("name",))


@dataclass(frozen=True)
class RuleViolation:
    """Violation of a rule about more than one field."""

    at: tuple[str | int, ...]
    """Path of the invalid field in the manifest's spelling, relative to the object with the
    rule."""
    allowed: str
    """Allowed values, to follow ``got 0, ``, such as ``must be at least 1``."""


def refusal(allowed: str) -> PydanticCustomError:
    """Return the error of a field; ``allowed`` as in :class:`RuleViolation`."""
    return PydanticCustomError("rule", "{allowed}", {"allowed": allowed})


class Model(BaseModel):
    """Base class of manifest types: immutable, without unknown fields, camelCase in manifests."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules of the API server: :meth:`_breaches` as far as CEL can express it, and immutable
    fields."""

    def _breaches(self) -> Iterator[RuleViolation]:
        """Yield the violations of rules between fields. Types with such rules override it."""
        return iter(())

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        if cls.rules:
            resolved[RULES] = [rule.as_schema() for rule in cls.rules]
        descriptions = attribute_docstrings(cls)
        for name, info in cls.model_fields.items():
            if name in descriptions:
                resolved["properties"][info.alias or name]["description"] = descriptions[name]
        return schema

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """Remove null fields, as in Kubernetes; a null does not hide an unknown field."""
        if not isinstance(data, dict):
            return data
        fields = {name for field, info in cls.model_fields.items() for name in (field, info.alias)}
        return {
            name: value for name, value in data.items() if value is not None or name not in fields
        }

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        errors = [
            InitErrorDetails(type=refusal(breach.allowed), loc=breach.at, input=None)
            for breach in self._breaches()
        ]
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


def dump(model: Model) -> dict[str, Any]:
    """Return the model as JSON, without fields that were not set."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


@dataclass(frozen=True)
class Matching:
    """Text that matches ``regex`` as a whole. ``allowed`` describes it in words."""

    regex: str
    """Expression in the syntax that Python and RE2 share."""
    allowed: str
    """Allowed values, as in :class:`RuleViolation`."""
    pattern: bool = False
    """Whether OpenAPI checks the expression instead of CEL, without ``allowed``. It is used for
    text that exceeds CEL's budget, and for int-or-string."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        anchored = f"^(?:{self.regex})$"
        if self.pattern:
            return {**handler(schema), "pattern": anchored}
        rule = Rule(f"self.matches(r'{anchored}')", self.allowed)
        return {**handler(schema), RULES: [rule.as_schema()]}

    def _check(self, text: str) -> str:
        if not re.fullmatch(self.regex, text, re.ASCII):
            raise refusal(self.allowed)
        return text


def _moment(value: Any) -> Any:
    """Return the time of Kubernetes' ``date-time``, which is RFC 3339 with an offset from UTC."""
    if isinstance(value, datetime):
        return value
    shape = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
    try:
        if isinstance(value, str) and re.fullmatch(shape, value, re.ASCII):
            return datetime.fromisoformat(value)
    except ValueError:
        pass  # for example the 31st of February
    raise refusal("must be a moment in RFC 3339, like 2026-01-31T12:00:00Z")


_FIRST_YEAR, _LAST_YEAR = 1970, 2099
_OF_RECORDS = Rule(
    f"self >= timestamp('{_FIRST_YEAR}-01-01T00:00:00Z')"
    f" && self < timestamp('{_LAST_YEAR + 1}-01-01T00:00:00Z')",
    f"must be in the years {_FIRST_YEAR} to {_LAST_YEAR}",
)


def _is_of_records(time: datetime) -> datetime:
    if not _FIRST_YEAR <= time.astimezone(UTC).year <= _LAST_YEAR:
        raise refusal(_OF_RECORDS.allowed)
    return time


def _as_text(value: Any) -> Any:
    """Return Kubernetes' int-or-string as text."""
    if isinstance(value, bool | float):
        raise refusal("must be text or a whole number: put it in quotes")
    return str(value) if isinstance(value, int) else value


def _is_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise refusal(f"must be a regular expression: {error}") from None
    except RecursionError:
        raise refusal("must be a regular expression, and not nested so deeply") from None
    return pattern


_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
"""A DNS label (RFC 1123), at most 63 characters long."""
TOPIC = r"(\.{0,2}[\w-]|\.{3})[\w.-]*"
"""Topic name (``org.apache.kafka.common.internals.Topic``) of at most 249 characters. ``.`` and
``..`` are invalid."""

Flag = StrictBool
Whole = StrictInt
Count = Annotated[StrictInt, Field(ge=0)]
AtLeastOne = Annotated[StrictInt, Field(ge=1)]
Share = Annotated[StrictFloat, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=1024)]
Unquoted = Annotated[str, Field(max_length=4096), BeforeValidator(_as_text), INT_OR_STRING]
"""Text that may be a whole number without quotes in YAML."""
Timestamp = Annotated[AwareDatetime, BeforeValidator(_moment)]
RecordTime = Annotated[
    Timestamp,
    AfterValidator(_is_of_records),
    Extension({RULES: [_OF_RECORDS.as_schema()]}),
]
"""Time of a record. Kafka counts from 1970, and gives negative times another meaning."""

Label = Annotated[
    str,
    Field(max_length=63),
    Matching(LABEL, "must be a DNS label: a-z, 0-9 and '-', a letter or digit at both ends"),
]
A_NAME = Matching(
    rf"{LABEL}(\.{LABEL})*",
    "must be a name as Kubernetes takes it: a-z, 0-9, '-' and '.', a letter or digit at both ends",
)
Name = Annotated[str, Field(max_length=253), A_NAME]
HostName = Annotated[
    str,
    Field(max_length=253),
    Matching(rf"{LABEL}(\.{LABEL})*", "must be the name of a host", pattern=True),
]
Topic = Annotated[
    str,
    Field(max_length=249),
    Matching(TOPIC, "must be a topic's name: letters, digits, '.', '_', '-'"),
]
_LABEL_KEY = (
    rf"({LABEL}(\.{LABEL})*/)?{_WORD}",
    "must be a label's or annotation's key: letters, digits, '-', '_', '.', "
    "and perhaps a domain before a '/'",
)
LabelKey = Annotated[str, Field(max_length=317), Matching(*_LABEL_KEY, pattern=True)]
NameOfEntry = Annotated[str, Field(max_length=317), Matching(*_LABEL_KEY)]
"""Key of a mapping of labels or annotations. Schemas of Kubernetes have no patterns for keys."""
LabelValue = Annotated[
    str,
    Field(max_length=63),
    Matching(
        rf"({_WORD})?",
        "must be a label's value: letters, digits, '-', '_', '.', a letter or digit at both ends",
        pattern=True,
    ),
]
Image = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Matching(r"\S+", "must be the name of an image, without spaces", pattern=True),
]
_ONLY_PYTHONS = r"\(\?|\\[^!-/:-@\[-`{-~]|[*+?}]\+|\{|\[:"
"""Syntax that RE2 lacks or interprets differently: groups with (?, escaped letters and digits,
possessive quantifiers, counts, and RE2's classes such as [:alpha:]."""
_REGEX = Rule(
    f"self.matches(r'{_ONLY_PYTHONS}') || ''.matches(self) in [true, false]",
    "must be a regular expression",
)
"""CEL has no function that validates an expression. If RE2 cannot compile it, the rule fails."""
Regex = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    AfterValidator(_is_regex),
    Extension({RULES: [_REGEX.as_schema()]}),
]
"""Regular expression that is applied to whole names (``re.fullmatch``)."""


@dataclass(frozen=True)
class OnlyWith:
    """A field that one choice of another field requires, and that all other choices forbid."""

    field: str
    """Field in the manifest's spelling."""
    of: str
    """Field that contains the choice."""
    choice: str
    """Choice that requires the field."""

    @property
    def _required(self) -> str:
        return f"is required with {self.of}: {self.choice}"

    @property
    def _only(self) -> str:
        return f"goes with {self.of}: {self.choice} only"

    def breaches(self, value: object, chosen: str) -> Iterator[RuleViolation]:
        """Yield a violation if the value of the field does not agree with ``chosen``."""
        if chosen == self.choice and value is None:
            yield RuleViolation((self.field,), self._required)
        if chosen != self.choice and value is not None:
            yield RuleViolation((self.field,), self._only)

    @property
    def rules(self) -> tuple[Rule, Rule]:
        """Rules for the API server."""
        chosen = f"has(self.{self.of}) && self.{self.of} == '{self.choice}'"
        given = f"has(self.{self.field})"
        return (
            Rule(f"!({chosen}) || {given}", self._required, self.field, "FieldValueRequired"),
            Rule(f"!{given} || {chosen}", self._only, self.field, "FieldValueForbidden"),
        )
