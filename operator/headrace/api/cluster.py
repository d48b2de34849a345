"""A Kafka cluster as a flow or a test names it: where it is, and how to connect."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from headrace.api.authentication import Authentication
from headrace.api.client_settings import CONFIG_RULES, config_problem
from headrace.api.compression import Compression
from headrace.api.extensions import Rule
from headrace.api.model import Breach, Label, Matching, Model, Name, Unquoted, Whole
from headrace.api.secret_key import SecretKey, SecretUse, TrustedCertificate

_HOST = r"([\w.-]+|\[[0-9a-fA-F:.]+\])"
_PORT = r"([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_SERVER = f" *{_HOST}:{_PORT} *"
Servers = Annotated[
    str,
    Field(max_length=4096),
    Matching(
        f"{_SERVER}(,{_SERVER})*", "must be host:port, or several of them separated by commas"
    ),
]


class ClientCertificate(Model):
    """A certificate and its private key (mutual TLS)."""

    secret_name: Name
    """Name of the Secret that holds both."""
    certificate_key: SecretKey | None = None
    """Key of the certificate chain, PEM; absent: tls.crt, or user.crt, as in the Secret of a
    Strimzi KafkaUser."""
    private_key_key: SecretKey | None = None
    """Key of the private key, PEM; absent: tls.key, or user.key."""

    def uses(self, field: str) -> Iterator[SecretUse]:
        """Return both keys together with the fields that refer to them."""
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
    """Encrypted connections; an empty mapping trusts the system's certificate authorities."""

    trusted_certificates: Annotated[tuple[TrustedCertificate, ...], Field(max_length=32)] = ()
    """Certificate authorities to trust, PEM; none: the system's."""
    client_certificate: ClientCertificate | None = None
    """The client's own certificate, where brokers ask for one."""


class ClusterSpec(Model):
    """A Kafka cluster and how to reach it."""

    alias: Label
    """Name of the cluster in topic names and in MirrorMaker 2's records; a DNS label; immutable."""
    bootstrap_servers: Servers
    """Brokers to ask first: host:port, several separated by commas."""
    tls: Tls | None = None
    """Encrypted connections; absent: plain text."""
    authentication: Authentication | None = None
    """How to authenticate; absent: not at all, or by the client certificate in tls."""
    config: Annotated[dict[str, Unquoted], Field(max_length=200)] = Field(default_factory=dict)
    """Further client settings; the reference lists the supported ones. For example
    {request.timeout.ms: "60000"}."""

    rules = CONFIG_RULES

    def uses(self) -> Iterator[SecretUse]:
        """Return every key of a Secret or ConfigMap that is named here."""
        if tls := self.tls:
            for place, trusted in enumerate(tls.trusted_certificates):
                yield trusted.use(f"tls.trustedCertificates[{place}]")
            if tls.client_certificate is not None:
                yield from tls.client_certificate.uses("tls.clientCertificate")
        if self.authentication is not None:
            yield from self.authentication.uses()

    def _breaches(self) -> Iterator[Breach]:
        for setting, value in self.config.items():
            if problem := config_problem(setting, value):
                yield Breach(("config", setting), problem)


class TargetClusterSpec(ClusterSpec):
    """The cluster that is written to."""

    replication_factor: Annotated[Whole, Field(ge=1, le=32767)] | None = None
    """Replicas of the topics that headrace creates; absent: the brokers' default."""
    compression: Compression = Compression()
    """How batches are compressed on the target."""


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
""":func:`breaches_between` for the API server; it cannot
compare two lists of brokers in different order."""


def breaches_between(source: ClusterSpec, target: ClusterSpec) -> Iterator[Breach]:
    """What keeps ``spec.source`` and ``spec.target`` from being two clusters."""
    if source.alias == target.alias:
        yield Breach(("target", "alias"), _OTHER_ALIAS)
    if _addresses(source) == _addresses(target):
        yield Breach(("target", "bootstrapServers"), _OTHER_BROKERS)


def _addresses(cluster: ClusterSpec) -> set[str]:
    return {server.strip().lower() for server in cluster.bootstrap_servers.split(",")}
