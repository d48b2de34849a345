"""What only Kubernetes' schemas can say of a value, stated beside the type that it is about.

Annotations of fields, and the ``rules`` of a type. Reading a manifest ignores them; ``structural``
finds them again in the JSON schema.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

RULES: Final = "x-kubernetes-validations"
SERVER_DEFAULT: Final = "x-headrace-server-default"
REQUIRED: Final = "x-headrace-required"


@dataclass(frozen=True)
class Extension:
    """Keys of a schema that pydantic does not know."""

    keys: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(core_schema), **self.keys}


@dataclass(frozen=True)
class Rule:
    """A rule in CEL, which the API server checks before it takes an object."""

    cel: str
    """True of what is right; ``self`` is the value, ``oldSelf`` the one that it replaces."""
    allowed: str
    """What is allowed, to follow the name of the field: ``must be at least 1``."""
    at: str = ""
    """The field to blame, from the value that has the rule: ``target.alias``."""
    reason: Literal["FieldValueRequired", "FieldValueForbidden"] | None = None
    """Kubernetes' word for what is the matter, which ``kubectl`` shows; None: an invalid value."""

    def as_schema(self) -> dict[str, str]:
        """An item of ``x-kubernetes-validations``."""
        schema = {"rule": self.cel, "message": self.allowed}
        if self.at:
            schema["fieldPath"] = f".{self.at}"
        if self.reason:
            schema["reason"] = self.reason
        return schema


INT_OR_STRING: Final = Extension({"x-kubernetes-int-or-string": True})
DISTINCT: Final = Extension({"x-kubernetes-list-type": "set"})
"""A list that names nothing twice."""
BY_TYPE: Final = Extension(
    {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)
"""A list that is applied item by item: each may have a writer of its own."""
BY_NAME: Final = Extension(
    {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
)
"""The same of items with names."""
BY_PARTITION: Final = Extension(
    {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topic", "partition"]}
)
"""The same of items that name a partition: the API server refuses one that is named twice."""
REQUIRED_BY_SERVER: Final = Extension({REQUIRED: True})
"""The API server refuses an object without it. It is optional in memory, where whoever writes the
object fills it in last; and what an earlier version wrote without it can be read."""
FILLED_IN_BY_SERVER: Final = Extension({SERVER_DEFAULT: True})
"""The API server writes the default into the object: something of Kubernetes' own reads it there.
Other defaults are filled in on reading, so that what a user set stays known."""
