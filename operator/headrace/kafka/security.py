"""How a client gets in: TLS and SASL, in librdkafka's settings."""

from typing import Any

from headrace.api import AuthenticationType, ClusterAccess
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import TlsFailed

MECHANISMS = {
    AuthenticationType.PLAIN: "PLAIN",
    AuthenticationType.SCRAM_SHA_256: "SCRAM-SHA-256",
    AuthenticationType.SCRAM_SHA_512: "SCRAM-SHA-512",
}
"""Kafka's name of the mechanism."""

# What librdkafka calls the setting that a file went into -> the field that named the file.
_FIELDS = {
    "ssl.ca.": "trustedCertificates",
    "ssl.certificate.": "clientCertificate.certificateKey",
    "ssl.key.": "clientCertificate.privateKeyKey",
}


def protocol(cluster: ClusterAccess) -> str:
    """Kafka's ``security.protocol``."""
    encrypted, login = cluster.spec.tls is not None, cluster.spec.authentication is not None
    return {
        (False, False): "PLAINTEXT",
        (True, False): "SSL",
        (False, True): "SASL_PLAINTEXT",
        (True, True): "SASL_SSL",
    }[encrypted, login]


def security_settings(cluster: ClusterAccess) -> dict[str, Any]:
    """Settings of librdkafka; reads the Secrets' files and raises ``SecretMissing``."""
    credentials = read_credentials(cluster)
    settings: dict[str, Any] = {"security.protocol": protocol(cluster)}
    if login := cluster.spec.authentication:
        settings |= {
            "sasl.mechanism": MECHANISMS[login.type],
            "sasl.username": login.username,
            "sasl.password": credentials.password,
        }
    if cluster.spec.tls is not None:
        settings["ssl.endpoint.identification.algorithm"] = "https"  # the host's name is checked
    if credentials.trusted:
        settings["ssl.ca.pem"] = credentials.trusted
    if credentials.certificate:
        settings["ssl.certificate.pem"] = credentials.certificate
        settings["ssl.key.pem"] = credentials.private_key
    return settings


def unusable_files(cluster: ClusterAccess, reason: str) -> TlsFailed:
    """For files that the client cannot make anything of; ``reason`` is what it says of them."""
    named = next((field for setting, field in _FIELDS.items() if setting in reason), "")
    fields = [use for use in cluster.spec.uses() if use.field.startswith("tls.")]
    concerned = [use for use in fields if named.partition(".")[0] in use.field] or fields
    files = ", ".join(dict.fromkeys(f"{use.key} of Secret {use.secret_name}" for use in concerned))
    return TlsFailed(
        f"could not use {files} for {cluster.name}: {reason}; {cluster.field}.tls wants PEM files, "
        "and a private key that fits its certificate"
    )
