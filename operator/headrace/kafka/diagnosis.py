"""Why a cluster cannot be reached, found by connecting to its listeners.

librdkafka reports a wrong host name and an unknown authority with the same words, and nothing of
a listener with TLS when the client has none: it only sees connections that end.
"""

import socket
import ssl

from confluent_kafka import KafkaError

from headrace.api import ClusterAccess
from headrace.errors import HeadraceError
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import (
    AuthenticationFailed,
    SecretMissing,
    TlsFailed,
    Unreachable,
    words,
)

_TIMEOUT_S = 2.0

Server = tuple[str, int]


def diagnose(
    cluster: ClusterAccess, tried: str, failure: HeadraceError, client_error: KafkaError | None
) -> HeadraceError:
    """A better error for ``failure``, where there is one.

    ``client_error`` is what the client last said of its connections. May take some seconds.
    """
    if not isinstance(failure, Unreachable | AuthenticationFailed | TlsFailed):
        return failure
    if client_error is not None and client_error.code() == KafkaError._AUTHENTICATION:
        advice = _login_advice(cluster, client_error)
        return AuthenticationFailed(f"could not {tried}: {words(client_error)}; {advice}")
    if (server := _listening(cluster)) is None:
        return failure
    if why := _tls_trouble(cluster, server, client_error):
        return TlsFailed(f"could not {tried}: {why}")
    if cluster.spec.authentication is None and isinstance(failure, Unreachable):
        return Unreachable(
            f"could not {tried}: {_shown(server)} is open, and no broker answers there; where its "
            f"listener wants a login, set {cluster.field}.authentication"
        )
    return failure


def _tls_trouble(
    cluster: ClusterAccess, server: Server, client_error: KafkaError | None
) -> str | None:
    if cluster.spec.tls is None:
        if not _speaks_tls(server):
            return None
        return (
            f"{_shown(server)} speaks TLS; set {cluster.field}.tls, or name the listener that "
            "takes plain text"
        )
    if why := _refused_certificate(cluster, server):
        return why
    if client_error is not None and "alert" in client_error.str():
        return _client_certificate_advice(cluster, server)
    return None


def _login_advice(cluster: ClusterAccess, client_error: KafkaError) -> str:
    if "Request not valid in current SASL state" in client_error.str():
        return f"the listener wants no login; leave {cluster.field}.authentication out"
    login = cluster.spec.authentication
    if login is None or login.password is None:
        return f"check {cluster.field}.authentication"
    return (
        f"check {cluster.field}.authentication: type {login.type}, username {login.username}, and "
        f"the key {login.password.key} of Secret {login.password.secret_name}"
    )


def _client_certificate_advice(cluster: ClusterAccess, server: Server) -> str:
    shown = _shown(server)
    own = cluster.spec.tls and cluster.spec.tls.client_certificate
    if not own:
        return f"{shown} wants a client certificate; set {cluster.field}.tls.clientCertificate"
    return (
        f"{shown} does not accept the client certificate in Secret {own.secret_name}; have it "
        f"signed by an authority that {cluster.alias} trusts, or name another in "
        f"{cluster.field}.tls.clientCertificate"
    )


def _shown(server: Server) -> str:
    return f"{server[0]}:{server[1]}"


def _listening(cluster: ClusterAccess) -> Server | None:
    """The first of the bootstrap servers that takes connections."""
    for server in cluster.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        address = host.strip("[]"), int(port)
        try:
            socket.create_connection(address, _TIMEOUT_S).close()
        except OSError:
            continue
        return address
    return None


def _speaks_tls(server: Server) -> bool:
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    try:
        _shake_hands(anything, server)
    except (OSError, ValueError):
        return False
    return True


def _refused_certificate(cluster: ClusterAccess, server: Server) -> str | None:
    """What is wrong with the listener's certificate, or with there being none."""
    try:
        context = ssl.create_default_context(cadata=read_credentials(cluster).trusted or None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not that strict
        _shake_hands(context, server)
    except ssl.SSLCertVerificationError as error:
        return (
            f"the certificate of {_shown(server)} is refused: {error.verify_message.rstrip('.')}; "
            f"{_trust_advice(cluster, error)}"
        )
    except (ssl.SSLError, ConnectionError):
        return (
            f"{_shown(server)} does not speak TLS; leave {cluster.field}.tls out, or name the "
            "listener that does"
        )
    except (OSError, SecretMissing):
        return None
    return None


def _trust_advice(cluster: ClusterAccess, error: ssl.SSLCertVerificationError) -> str:
    # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
    if error.verify_code in (62, 64):
        return f"use a name in {cluster.field}.bootstrapServers that the certificate has"
    if error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
        return "have the brokers' certificate renewed"
    trusted = cluster.spec.tls.trusted_certificates if cluster.spec.tls else ()
    named = ", ".join(f"{one.key} of Secret {one.secret_name}" for one in trusted)
    return (
        f"{cluster.field}.tls.trustedCertificates ({named or 'none: those of the system'}) must "
        "hold the authority that signed it"
    )


def _shake_hands(context: ssl.SSLContext, server: Server) -> None:
    with (
        socket.create_connection(server, _TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname=server[0]),
    ):
        pass
