"""Where a value lies: a key of a Secret in the namespace of the object that names it."""

from typing import Annotated, NamedTuple

from pydantic import Field

from headrace.api.model import Matching, Model, Name

KEY = r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*"
"""A Secret's key is a file's name where it is mounted: it cannot be '.', nor begin with '..'."""
SecretKey = Annotated[
    str,
    Field(max_length=253),
    Matching(KEY, "must be a Secret's key: letters, digits, '-', '_', '.'"),
]


class SecretKeyRef(Model):
    """One value in a Secret of the same namespace."""

    secret_name: Name
    """Name of the Secret."""
    key: SecretKey
    """Key in the Secret's data."""


class SecretUse(NamedTuple):
    """A key of a Secret, and the field that wants it."""

    field: str
    """Relative to the cluster: ``authentication.password``."""
    secret_name: str
    key: str
