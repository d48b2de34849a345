"""Kafka clusters of a manifest: addresses, authentication and Secrets."""

import base64
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from headrace.api.client_settings import CONFIG_RULES, Compression, config_problem
from headrace.api.meta import ObjectMeta
from headrace.api.model import (
    Flag,
    Label,
    Matching,
    Model,
    Name,
    Rule,
    RuleViolation,
    Text,
    Unquoted,
    Whole,
    refusal,
)

KEY = r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*"
"""Pattern of a key. It is the name of a mounted file, so it cannot be '.' or begin with '..'."""
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
        """Return the use of this key by ``field``."""
        if self.config_map_name is not None:
            return SecretUse(field, self.config_map_name, self.key, "ConfigMap")
        return SecretUse(field, self.secret_name or "", self.key)

    def __str__(self) -> str:
        return str(self.use(""))

    def _breaches(self) -> Iterator[RuleViolation]:
        if (self.secret_name is None) == (self.config_map_name is None):
            yield RuleViolation((), _ONE_HOLDER)


CONFIG_MAPS = "_configmaps"
"""Folder of ConfigMaps in the folder of Secrets. No Secret can have this name."""


class SecretUse(NamedTuple):
    """A key of a Secret or ConfigMap, and the field that refers to it."""

    field: str
    """Field relative to the cluster, such as ``authentication.password``."""
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


_HOST = r"([\w.-]+|\[[0-9a-fA-F:.]+\])"
Url = Annotated[
    str,
    Field(max_length=1024),
    Matching(
        rf"https?://{_HOST}(:\d{{1,5}})?(/[\w.~!$&*+,;=:@%/?()-]*)?",
        "must be a URL that begins with https:// or http://",
    ),
]
_EXTENSION_RULE = "must have names of letters (a-z, A-Z), other than auth"
_VALUE = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Matching(r"[ -~]+", "must be printable ASCII"),
]


class AuthenticationType(StrEnum):
    """SASL mechanism."""

    PLAIN = "Plain"
    SCRAM_SHA_256 = "ScramSha256"
    SCRAM_SHA_512 = "ScramSha512"
    OAUTH_BEARER = "OAuthBearer"


class OAuth(Model):
    """Source of tokens: the client credentials grant of OAuth 2.0 (RFC 6749, section 4.4)."""

    token_endpoint: Url
    """URL of the token endpoint. With http:// the client secret is sent in plain text."""
    client_id: Annotated[Text, Field(min_length=1)]
    """Client id at the token endpoint."""
    client_secret: SecretKeyRef
    """Reference to the client secret."""
    scope: _VALUE | None = None
    """Requested scopes, separated by spaces."""
    extensions: Annotated[dict[str, _VALUE], Field(max_length=16)] = Field(default_factory=dict)
    """SASL extensions that are sent to brokers with the token (KIP-342), by name."""
    trusted_certificates: Annotated[tuple[TrustedCertificate, ...], Field(max_length=32)] = ()
    """Certificate authorities to trust at the token endpoint (PEM). Default: the system's
    authorities."""

    rules = (
        # For the API server, the keys have no maximum length, so a rule that matches them by a
        # pattern would exceed the cost limit.
        Rule(
            "!has(self.extensions) || !('auth' in self.extensions)",
            _EXTENSION_RULE,
            at="extensions",
        ),
    )

    def uses(self) -> Iterator[SecretUse]:
        """Yield every key of a Secret or ConfigMap to which a field refers."""
        field, secret = "authentication.oauth", self.client_secret
        yield SecretUse(f"{field}.clientSecret", secret.secret_name, secret.key)
        for place, trusted in enumerate(self.trusted_certificates):
            yield trusted.use(f"{field}.trustedCertificates[{place}]")

    def _breaches(self) -> Iterator[RuleViolation]:
        if any(n == "auth" or not n.isascii() or not n.isalpha() for n in self.extensions):
            yield RuleViolation(("extensions",), _EXTENSION_RULE)


_FOR_A_PASSWORD = "is required with type: Plain, ScramSha256 or ScramSha512"
_OF_A_PASSWORD = "is not used with type: OAuthBearer, which takes oauth"
ONE_USERNAME = "must not be set beside username"
_FOR_TOKENS = "is required with type: OAuthBearer"
_OF_TOKENS = "is used with type: OAuthBearer only"


def password_rules(without: str, within: str, required: str, excluded: str) -> Iterator[Rule]:
    """Yield the rules of username, usernameFrom and password.

    Args:
        without: CEL expression that is true if no password is used.
        within: CEL expression that is true if a password is used.
        required: Message about a missing field.
        excluded: Message about a field that is set although no password is used.
    """
    username, password = "has(self.username) || has(self.usernameFrom)", "has(self.password)"
    for field, given in (("username", username), ("password", password)):
        yield Rule(f"{without} || {given}", required, at=field, reason="FieldValueRequired")
    yield Rule(
        "!has(self.username) || !has(self.usernameFrom)",
        ONE_USERNAME,
        at="usernameFrom",
        reason="FieldValueForbidden",
    )
    for field in ("username", "usernameFrom", "password"):
        yield Rule(
            f"{within} || !has(self.{field})", excluded, at=field, reason="FieldValueForbidden"
        )


class Authentication(Model):
    """Authentication of a client (SASL)."""

    type: AuthenticationType
    """SASL mechanism."""
    username: Annotated[Text, Field(min_length=1)] | None = None
    """User name. Plain, ScramSha256 and ScramSha512 require this field or usernameFrom."""
    username_from: UsernameRef | None = None
    """Reference to the user name, instead of username."""
    password: PasswordRef | None = None
    """Reference to the password. Required by Plain, ScramSha256 and ScramSha512."""
    oauth: OAuth | None = None
    """Source of tokens. Required by OAuthBearer."""

    rules = (
        *password_rules(
            "self.type == 'OAuthBearer'",
            "self.type != 'OAuthBearer'",
            _FOR_A_PASSWORD,
            _OF_A_PASSWORD,
        ),
        Rule(
            "self.type != 'OAuthBearer' || has(self.oauth)",
            _FOR_TOKENS,
            at="oauth",
            reason="FieldValueRequired",
        ),
        Rule(
            "self.type == 'OAuthBearer' || !has(self.oauth)",
            _OF_TOKENS,
            at="oauth",
            reason="FieldValueForbidden",
        ),
    )

    def uses(self) -> Iterator[SecretUse]:
        """Yield every key of a Secret or ConfigMap to which a field refers."""
        for name, found in (("usernameFrom", self.username_from), ("password", self.password)):
            if found is not None:
                yield SecretUse(f"authentication.{name}", found.secret_name, found.key)
        if self.oauth is not None:
            yield from self.oauth.uses()

    def _breaches(self) -> Iterator[RuleViolation]:
        by_token = self.type is AuthenticationType.OAUTH_BEARER
        named = self.username or self.username_from
        for field, value in (("username", named), ("password", self.password)):
            if value is None and not by_token:
                yield RuleViolation((field,), _FOR_A_PASSWORD)
        for field, found in (
            ("username", self.username),
            ("usernameFrom", self.username_from),
            ("password", self.password),
        ):
            if found is not None and by_token:
                yield RuleViolation((field,), _OF_A_PASSWORD)
        if self.username is not None and self.username_from is not None:
            yield RuleViolation(("usernameFrom",), ONE_USERNAME)
        if (self.oauth is not None) is not by_token:
            yield RuleViolation(("oauth",), _FOR_TOKENS if by_token else _OF_TOKENS)


_PORT = r"([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_SERVER = f" *{_HOST}:{_PORT} *"


def _list_each_once(servers: str) -> str:
    counts = Counter(one.strip().lower() for one in servers.split(","))
    if twice := [one for one, count in counts.items() if count > 1]:
        raise refusal(f"must not list {twice[0]} twice")
    return servers


Servers = Annotated[
    str,
    Field(max_length=4096),
    Matching(
        f"{_SERVER}(,{_SERVER})*", "must be host:port, or several of them separated by commas"
    ),
    AfterValidator(_list_each_once),
]


class ClientCertificate(Model):
    """A certificate and its private key (mutual TLS)."""

    secret_name: Name
    """Name of the Secret that contains both."""
    certificate_key: SecretKey | None = None
    """Key of the certificate chain (PEM). Default: tls.crt, or user.crt as in the Secret of a
    Strimzi KafkaUser."""
    private_key_key: SecretKey | None = None
    """Key of the private key (PEM). Default: tls.key, or user.key."""

    def uses(self, field: str) -> Iterator[SecretUse]:
        """Yield both keys together with the fields that refer to them."""
        for name, key, usual, other in (
            ("certificateKey", self.certificate_key, "tls.crt", "user.crt"),
            ("privateKeyKey", self.private_key_key, "tls.key", "user.key"),
        ):
            at = f"{field}.{name}"
            if key is None:
                yield SecretUse(at, self.secret_name, usual, other_key=other)
            else:
                yield SecretUse(at, self.secret_name, key)


class Tls(Model):
    """Encrypted connections. An empty mapping trusts the system's certificate authorities."""

    trusted_certificates: Annotated[tuple[TrustedCertificate, ...], Field(max_length=32)] = ()
    """Certificate authorities to trust (PEM). Default: the system's authorities."""
    client_certificate: ClientCertificate | None = None
    """Certificate of the client, if brokers require one."""


class ClusterSpec(Model):
    """A Kafka cluster and how to reach it."""

    alias: Label
    """Name of the cluster in topic names and in MirrorMaker 2's records. It is a DNS label and
    immutable.
    """
    bootstrap_servers: Servers
    """Brokers to contact first: host:port, separated by commas."""
    tls: Tls | None = None
    """Encrypted connections. If absent, connections use plain text."""
    authentication: Authentication | None = None
    """Client authentication. If absent, clients do not authenticate, except by a client certificate
    in tls."""
    config: Annotated[dict[str, Unquoted], Field(max_length=200)] = Field(default_factory=dict)
    """Further client settings; the reference lists the supported ones. For example
    {request.timeout.ms: "60000"}."""

    rules = CONFIG_RULES

    def uses(self) -> Iterator[SecretUse]:
        """Yield every key of a Secret or ConfigMap to which a field refers."""
        if tls := self.tls:
            for place, trusted in enumerate(tls.trusted_certificates):
                yield trusted.use(f"tls.trustedCertificates[{place}]")
            if tls.client_certificate is not None:
                yield from tls.client_certificate.uses("tls.clientCertificate")
        if self.authentication is not None:
            yield from self.authentication.uses()

    def _breaches(self) -> Iterator[RuleViolation]:
        for setting, value in self.config.items():
            if problem := config_problem(setting, value):
                yield RuleViolation(("config", setting), problem)


class TargetClusterSpec(ClusterSpec):
    """The cluster to which the flow writes."""

    replication_factor: Annotated[Whole, Field(ge=1, le=32767)] | None = None
    """Replication factor of topics that headrace creates. Default: the brokers' setting."""
    compression: Compression = Compression()
    """Compression of batches on the target."""


_OTHER_ALIAS = "must differ from spec.source.alias"
_OTHER_BROKERS = "must differ from spec.source.bootstrapServers: a mirror joins two clusters"

BETWEEN_CLUSTERS = (
    Rule(
        "!has(self.source) || !has(self.target) || self.source.alias != self.target.alias",
        _OTHER_ALIAS,
        at="target.alias",
    ),
    Rule(
        "!has(self.source) || !has(self.target)"
        " || self.source.bootstrapServers.replace(' ', '').lowerAscii()"
        " != self.target.bootstrapServers.replace(' ', '').lowerAscii()",
        _OTHER_BROKERS,
        at="target.bootstrapServers",
    ),
)
"""Rules of ``breaches_between`` in CEL, for the API server.

CEL cannot detect that two lists contain the same brokers in a different order.
"""


def breaches_between(source: ClusterSpec, target: ClusterSpec) -> Iterator[RuleViolation]:
    """Yield the reasons why ``spec.source`` and ``spec.target`` are not two clusters."""
    if source.alias == target.alias:
        yield RuleViolation(("target", "alias"), _OTHER_ALIAS)
    if _addresses(source) == _addresses(target):
        yield RuleViolation(("target", "bootstrapServers"), _OTHER_BROKERS)


def _addresses(cluster: ClusterSpec) -> set[str]:
    return {server.strip().lower() for server in cluster.bootstrap_servers.split(",")}


@dataclass(frozen=True)
class ClusterAccess:
    """Access of a process to a cluster, with references to secrets."""

    spec: ClusterSpec
    """Address of the cluster, and references to its Secrets."""
    field: str = "spec"
    """Field of ``spec`` in its manifest, for messages: ``spec.source``."""
    secrets: Path | None = None
    """Folder of Secrets in Kubernetes' mount layout, ``<name>/<key>``, or None if there is none."""
    cluster_id: str | None = None
    """Id of the cluster, if it is known. A broker that reports another id is rejected."""

    @property
    def alias(self) -> str:
        """Name of the cluster."""
        return self.spec.alias

    @property
    def bootstrap_servers(self) -> str:
        """Brokers to contact first."""
        return self.spec.bootstrap_servers

    @property
    def name(self) -> str:
        """Alias and address, for messages."""
        return f"{self.alias} ({self.bootstrap_servers})"


# Kubernetes' Secret and ConfigMap, as far as headrace reads them from files.
#
# The values of a Secret are never shown.

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
    """Type of the content, as in Kubernetes."""
    immutable: Flag = False
    """Whether Kubernetes rejects changes."""
    data: dict[str, str] = Field(default_factory=dict, repr=False)
    """Values in base64, by key."""
    string_data: dict[str, str] = Field(default_factory=dict, repr=False)
    """Values in plain text, by key. They take precedence over data."""

    @property
    def values(self) -> dict[str, bytes]:
        """Decoded values, by key."""
        decoded = {key: _decode(text) for key, text in self.data.items()}
        return decoded | {key: text.encode() for key, text in self.string_data.items()}

    @property
    def folder(self) -> str:
        """Folder of the object in the folder of Secrets."""
        return self.metadata.name

    def _breaches(self) -> Iterator[RuleViolation]:
        for field in ("data", "stringData"):
            for key in self.data if field == "data" else self.string_data:
                if not re.fullmatch(KEY, key):
                    yield RuleViolation((field, key), _KEY_RULE)
        for key, text in self.data.items():
            try:
                _decode(text)
            except ValueError:  # binascii.Error is a ValueError
                yield RuleViolation(("data", key), "must be base64 (stringData takes plain text)")


class ConfigMap(Model):
    """Kubernetes' ConfigMap, which may contain certificate authorities."""

    api_version: Literal["v1"] = "v1"
    """Version of Kubernetes' API."""
    kind: Literal["ConfigMap"] = "ConfigMap"
    """Kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    immutable: Flag = False
    """Whether Kubernetes rejects changes."""
    data: dict[str, str] = Field(default_factory=dict)
    """Text, by key."""

    @property
    def values(self) -> dict[str, bytes]:
        """The values, by key."""
        return {key: text.encode() for key, text in self.data.items()}

    @property
    def folder(self) -> str:
        """Folder of the object in the folder of Secrets."""
        return f"{CONFIG_MAPS}/{self.metadata.name}"

    def _breaches(self) -> Iterator[RuleViolation]:
        for key in self.data:
            if not re.fullmatch(KEY, key):
                yield RuleViolation(("data", key), _CONFIG_MAP_KEY_RULE)


def _decode(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)  # lines may be wrapped
