"""How a client gets in: TLS and SASL, in librdkafka's settings."""

import time
from functools import partial
from typing import Any

from headrace.api import AuthenticationType, ClusterAccess
from headrace.errors import HeadraceError
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import TlsFailed
from headrace.kafka.tokens import Tokens, tokens_of

MECHANISMS = {
    AuthenticationType.PLAIN: "PLAIN",
    AuthenticationType.SCRAM_SHA_256: "SCRAM-SHA-256",
    AuthenticationType.SCRAM_SHA_512: "SCRAM-SHA-512",
    AuthenticationType.OAUTH_BEARER: "OAUTHBEARER",
}
"""Kafka's name of the mechanism."""

_ASKED_AGAIN_S = 2.0
"""The lifetime that is returned where there is no token, or not yet a new one."""

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
    """Settings of librdkafka; reads the Secrets' files and raises ``SecretMissing``.

    With ``type: OAuthBearer`` waits for a token, and raises ``TokenUnavailable``: a client without
    one would raise an error that says nothing, after ten seconds.
    """
    credentials = read_credentials(cluster)
    settings: dict[str, Any] = {"security.protocol": protocol(cluster)}
    login = cluster.spec.authentication
    if (tokens := tokens_of(cluster)) is not None and login is not None and login.oauth is not None:
        tokens.get()
        settings |= {
            "sasl.mechanism": MECHANISMS[login.type],
            "oauth_cb": partial(_token, tokens, dict(login.oauth.extensions)),
        }
    elif login is not None:
        settings |= {
            "sasl.mechanism": MECHANISMS[login.type],
            "sasl.username": credentials.username,
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


def _token(
    tokens: Tokens, extensions: dict[str, str], _: str
) -> tuple[str, float, str, dict[str, str]]:
    """For librdkafka, which calls it in a thread of the client's own: at first, and after
    80 % of the lifetime that is returned. Never raises: after a failure a client does not call
    again for ten seconds. Where there is no token it gets a word that brokers refuse."""
    now_s = time.time()
    try:
        token = tokens.get()
    except HeadraceError:
        return "none", now_s + _ASKED_AGAIN_S, "", extensions
    asked_again_s = max((token.renewed_s - now_s) / 0.8, _ASKED_AGAIN_S)
    return token.value, now_s + asked_again_s, token.subject, extensions


def unusable_files(cluster: ClusterAccess, reason: str) -> TlsFailed:
    """For files that the client cannot make anything of; ``reason`` is what it says of them."""
    named = next((field for setting, field in _FIELDS.items() if setting in reason), "")
    fields = [use for use in cluster.spec.uses() if use.field.startswith("tls.")]
    concerned = [use for use in fields if named.partition(".")[0] in use.field] or fields
    files = ", ".join(dict.fromkeys(map(str, concerned)))
    return TlsFailed(
        f"could not use {files} for {cluster.name}: {reason}; {cluster.field}.tls wants PEM files, "
        "and a private key that fits its certificate"
    )
