"""Kubernetes' Secret and ConfigMap, as far as headrace reads them from files.

The values of a Secret are never shown.
"""

import base64
import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from headrace.api.meta import ObjectMeta
from headrace.api.model import Breach, Flag, Model
from headrace.api.secret_key import CONFIG_MAPS, KEY

_KEY_RULE = "must be a Secret's key: letters, digits, '-', '_', '.'"
_CONFIG_MAP_KEY_RULE = "must be a ConfigMap's key: letters, digits, '-', '_', '.'"


class Secret(Model):
    """Passwords and certificates, by key."""

    api_version: Literal["v1"] = "v1"
    """Version of Kubernetes' API."""
    kind: Literal["Secret"] = "Secret"
    """Kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    type: str = "Opaque"
    """What kind of content it is, in Kubernetes' names."""
    immutable: Flag = False
    """Whether Kubernetes keeps it from being changed."""
    data: dict[str, str] = Field(default_factory=dict, repr=False)
    """Values in base64, by key."""
    string_data: dict[str, str] = Field(default_factory=dict, repr=False)
    """Values as they are, by key; win over data."""

    @property
    def values(self) -> dict[str, bytes]:
        """The values themselves, by key."""
        decoded = {key: _decode(text) for key, text in self.data.items()}
        return decoded | {key: text.encode() for key, text in self.string_data.items()}

    @property
    def folder(self) -> str:
        """Its folder in the folder of Secrets."""
        return self.metadata.name

    def _breaches(self) -> Iterator[Breach]:
        for field in ("data", "stringData"):
            for key in self.data if field == "data" else self.string_data:
                if not re.fullmatch(KEY, key):
                    yield Breach((field, key), _KEY_RULE)
        for key, text in self.data.items():
            try:
                _decode(text)
            except ValueError:  # binascii.Error is one
                yield Breach(("data", key), "must be base64 (stringData takes plain text)")


class ConfigMap(Model):
    """Kubernetes' ConfigMap, which may contain certificate authorities."""

    api_version: Literal["v1"] = "v1"
    """Version of Kubernetes' API."""
    kind: Literal["ConfigMap"] = "ConfigMap"
    """Kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    immutable: Flag = False
    """Whether Kubernetes keeps it from being changed."""
    data: dict[str, str] = Field(default_factory=dict)
    """Text, by key."""

    @property
    def values(self) -> dict[str, bytes]:
        """The values, by key."""
        return {key: text.encode() for key, text in self.data.items()}

    @property
    def folder(self) -> str:
        """Its folder in the folder of Secrets."""
        return f"{CONFIG_MAPS}/{self.metadata.name}"

    def _breaches(self) -> Iterator[Breach]:
        for key in self.data:
            if not re.fullmatch(KEY, key):
                yield Breach(("data", key), _CONFIG_MAP_KEY_RULE)


def _decode(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)  # lines may be wrapped
