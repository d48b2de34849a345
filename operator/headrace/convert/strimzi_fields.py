"""Types of the fields of a ``KafkaMirrorMaker2`` that the conversion reads.

Strimzi's own schema has more fields. They are accepted as they are, because the conversion lists
them in notes.
"""

from typing import Any

from pydantic import StrictInt, ValidationError

from headrace.api.manifest_errors import Key, ManifestMistake, explain
from headrace.api.manifests import Document
from headrace.api.model import Model
from headrace.errors import InvalidSpec


class _Fields(Model, extra="allow"):
    pass


class _Certificate(_Fields):
    secret_name: str
    certificate: str = "ca.crt"


class _Tls(_Fields):
    trusted_certificates: tuple[_Certificate, ...] | None = None


class _KeyPair(_Fields):
    secret_name: str
    certificate: str
    key: str


class _Password(_Fields):
    secret_name: str
    password: str


class _SecretKey(_Fields):
    secret_name: str
    key: str


class _Authentication(_Fields):
    type: str
    certificate_and_key: _KeyPair | None = None
    password_secret: _Password | None = None
    client_secret: _SecretKey | None = None


class _Cluster(_Fields):
    alias: str
    tls: _Tls | None = None
    authentication: _Authentication | None = None
    config: dict[str, Any] | None = None


class _Connector(_Fields):
    tasks_max: StrictInt | None = None
    config: dict[str, Any] | None = None


class _Mirror(_Fields):
    source: _Cluster | None = None
    source_connector: _Connector | None = None
    checkpoint_connector: _Connector | None = None
    heartbeat_connector: _Connector | None = None


class _Spec(_Fields):
    clusters: tuple[_Cluster, ...] | None = None
    target: _Cluster | None = None
    mirrors: tuple[_Mirror, ...] | None = None
    template: dict[str, dict[str, Any] | None] | None = None


class _Metadata(_Fields):
    name: str
    labels: dict[str, str] | None = None


class _Resource(_Fields):
    metadata: _Metadata
    spec: _Spec


def check_fields(document: Document, data: object, path: tuple[Key, ...]) -> None:
    """Raise ``InvalidSpec`` with a line for each field of a wrong type."""
    try:
        _Resource.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        mistakes = [
            ManifestMistake(document.file, document.line((*path, *at)), at, allowed, given)
            for at, allowed, given in explain(error, _Resource, data)
        ]
        raise InvalidSpec("\n".join(map(str, mistakes))) from None
