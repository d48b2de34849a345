"""What every type of a manifest has in common, and the scalar types their fields share.

Fields are snake_case in Python and camelCase in a manifest. What a user wrote stays known
(pydantic's ``model_fields_set``): defaults are filled in on reading, never written back.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self

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

from headrace.api.attribute_docstrings import attribute_docstrings
from headrace.api.extensions import INT_OR_STRING, RULES, Extension, Rule


@dataclass(frozen=True)
class Breach:
    """A rule about more than one field that an object breaks."""

    at: tuple[str | int, ...]
    """The field to blame, in the manifest's spelling, from the object that states the rule."""
    allowed: str
    """What is allowed, to follow ``got 0, ``: ``must be at least 1``."""


def refusal(allowed: str) -> PydanticCustomError:
    """The error of a field that breaks a rule; ``allowed`` as in :class:`Breach`."""
    return PydanticCustomError("rule", "{allowed}", {"allowed": allowed})


class Model(BaseModel):
    """Frozen, closed (an unknown field is a mistake), camelCase outside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """What the API server is to check between fields: :meth:`_breaches` as far as CEL can say it,
    and what may not change."""

    def _breaches(self) -> Iterator[Breach]:
        """Every rule between fields that this object breaks; types that have such rules say."""
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
        for name, field in cls.model_fields.items():
            if name in descriptions:
                resolved["properties"][field.alias or name]["description"] = descriptions[name]
        return schema

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """As in Kubernetes; an unknown field is a mistake with a null too, so that one stays."""
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
    """As JSON has it; what nobody set stays unset."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


@dataclass(frozen=True)
class Matching:
    """Text of which the whole matches ``regex``; ``allowed`` says so in words."""

    regex: str
    """In the syntax that Python and RE2 share."""
    allowed: str
    """As in :class:`Breach`."""
    pattern: bool = False
    """Say it in OpenAPI instead of CEL, without words: for text too long for CEL's budget, and for
    int-or-string."""

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
    """Kubernetes' ``date-time``: RFC 3339, with its offset from UTC."""
    if isinstance(value, datetime):
        return value
    shape = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
    try:
        if isinstance(value, str) and re.fullmatch(shape, value, re.ASCII):
            return datetime.fromisoformat(value)
    except ValueError:
        pass  # the 31st of February: as wrong as a wrong shape
    raise refusal("must be a moment in RFC 3339, like 2026-01-31T12:00:00Z")


def _as_text(value: Any) -> Any:
    """Kubernetes' int-or-string."""
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


LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
"""A DNS label (RFC 1123), at most 63 characters long."""
TOPIC = r"(\.{0,2}[\w-]|\.{3})[\w.-]*"
"""A topic's name (``org.apache.kafka.common.internals.Topic``), at most 249 characters long; ``.``
and ``..`` are none."""

Flag = StrictBool
Whole = StrictInt
Count = Annotated[StrictInt, Field(ge=0)]
AtLeastOne = Annotated[StrictInt, Field(ge=1)]
Share = Annotated[StrictFloat, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=1024)]
Unquoted = Annotated[str, Field(max_length=4096), BeforeValidator(_as_text), INT_OR_STRING]
"""Text that may be a whole number in YAML, without quotes."""
Timestamp = Annotated[AwareDatetime, BeforeValidator(_moment)]

Label = Annotated[
    str,
    Field(max_length=63),
    Matching(LABEL, "must be a DNS label: a-z, 0-9 and '-', a letter or digit at both ends"),
]
Name = Annotated[
    str,
    Field(max_length=253),
    Matching(
        rf"{LABEL}(\.{LABEL})*",
        "must be a name as Kubernetes takes it: a-z, 0-9, '-' and '.', "
        "a letter or digit at both ends",
    ),
]
Topic = Annotated[
    str,
    Field(max_length=249),
    Matching(TOPIC, "must be a topic's name: letters, digits, '.', '_', '-'"),
]
_ONLY_PYTHONS = r"\(\?|\\[^!-/:-@\[-`{-~]|[*+?}]\+|\{|\[:"
"""Of Python's syntax what RE2 reads differently, or not at all: groups with (?, escaped letters and
digits, possessive quantifiers, counts, and what RE2 takes for a class like [:alpha:]."""
_REGEX = Rule(
    f"self.matches(r'{_ONLY_PYTHONS}') || ''.matches(self) in [true, false]",
    "must be a regular expression",
)
"""CEL has no function that asks; an expression that RE2 cannot compile is an error of the rule."""
Regex = Annotated[
    str,
    Field(max_length=1024),
    AfterValidator(_is_regex),
    Extension({RULES: [_REGEX.as_schema()]}),
]
"""Applied to whole names (``re.fullmatch``)."""
