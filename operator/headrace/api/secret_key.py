"""References to keys of Secrets and ConfigMaps in the namespace of the object that has them."""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from headrace.api.extensions import Rule
from headrace.api.model import Breach, Matching, Model, Name

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


class UsernameRef(Model):
    """A user name in a Secret of the same namespace."""

    secret_name: Name
    """Name of the Secret."""
    key: SecretKey = "username"
    """Key in the Secret's data."""


class PasswordRef(Model):
    """A password in a Secret of the same namespace."""

    secret_name: Name
    """Name of the Secret."""
    key: SecretKey = "password"
    """Key in the Secret's data."""


_ONE_HOLDER = "must have either secretName or configMapName"


class TrustedCertificate(Model):
    """Certificate authorities in a Secret or a ConfigMap of the same namespace."""

    secret_name: Name | None = None
    """Name of the Secret."""
    config_map_name: Name | None = None
    """Name of the ConfigMap, instead of a Secret."""
    key: SecretKey = "ca.crt"
    """Key in the data of the Secret or ConfigMap."""

    rules = (Rule("has(self.secretName) != has(self.configMapName)", _ONE_HOLDER),)

    def use(self, field: str) -> "SecretUse":
        """Return the key together with the field that refers to it."""
        if self.config_map_name is not None:
            return SecretUse(field, self.config_map_name, self.key, "ConfigMap")
        return SecretUse(field, self.secret_name or "", self.key)

    def __str__(self) -> str:
        return str(self.use(""))

    def _breaches(self) -> Iterator[Breach]:
        if (self.secret_name is None) == (self.config_map_name is None):
            yield Breach((), _ONE_HOLDER)


CONFIG_MAPS = "_configmaps"
"""Folder of ConfigMaps in the folder of Secrets; no Secret can have this name."""


class SecretUse(NamedTuple):
    """A key of a Secret or ConfigMap, and the field that wants it."""

    field: str
    """Relative to the cluster: ``authentication.password``."""
    name: str
    key: str
    kind: Literal["Secret", "ConfigMap"] = "Secret"
    other_key: str = ""
    """Key that is read if ``key`` is absent."""

    @property
    def holder(self) -> str:
        """Kind and name of the object."""
        return f"{self.kind} {self.name}"

    @property
    def folder(self) -> str:
        """The object's folder in the folder of Secrets."""
        return self.name if self.kind == "Secret" else f"{CONFIG_MAPS}/{self.name}"

    def __str__(self) -> str:
        return f"{self.key} of {self.holder}"
