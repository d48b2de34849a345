"""Finds out why a cluster cannot be reached.

librdkafka reports a wrong host name and an unknown certificate authority with the same message. It
does not detect that a listener requires TLS: it only sees connections that close.
"""

import os
import re
import socket
import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from confluent_kafka import KafkaError

from headrace.api import ClusterAccess
from headrace.errors import HeadraceError, Unreachable
from headrace.kafka.errors import (
    AuthenticationFailed,
    SecretMissing,
    TlsFailed,
    TokenUnavailable,
    error_text,
)
from headrace.kafka.security import UNREADABLE, end_of, read_credentials, token_trouble

TIMEOUT_S = 2.0
"""Time limit in seconds for a connection, a handshake or a response of a diagnosis.

A server that runs responds in much less time, and a diagnosis delays the error of a request.
"""
_API_VERSIONS = bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255])
"""ApiVersions request, version 0, without a client id. Every broker responds before a login."""

Server = tuple[str, int]


def bootstrap_servers(cluster: ClusterAccess) -> list[str]:
    return [server.strip() for server in cluster.bootstrap_servers.split(",")]


def _address(server: str) -> Server:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def format_server(server: Server) -> str:
    """Return the address as ``host:port``."""
    return f"{server[0]}:{server[1]}"


def first_listening(cluster: ClusterAccess) -> Server | None:
    """Return the first bootstrap server that accepts connections, or None."""
    for address in map(_address, bootstrap_servers(cluster)):
        try:
            socket.create_connection(address, TIMEOUT_S).close()
        except OSError:
            continue
        return address
    return None


def why_unreachable(server: str) -> str:
    """Return the reason why a bootstrap server accepts no connection, as a sentence."""
    host = _address(server)[0]
    try:
        socket.create_connection(_address(server), TIMEOUT_S).close()
    except socket.gaierror as error:
        return f"the name {host} does not resolve ({error.strerror})"
    except TimeoutError:
        return f"{server} does not answer within {TIMEOUT_S:.0f} s (a firewall, or a wrong address)"
    except ConnectionRefusedError:
        return f"{server} refuses connections (no broker listens there)"
    except OSError as error:
        return f"{server} cannot be reached ({error.strerror})"
    return f"{server} listens again"


def silent_servers(cluster: ClusterAccess) -> list[str]:
    """Return the bootstrap servers that accept connections but do not respond."""
    return [
        server
        for server in dict.fromkeys(bootstrap_servers(cluster))
        if _is_silent(_address(server), tls=cluster.spec.tls is not None)
    ]


def _is_silent(server: Server, *, tls: bool) -> bool:
    try:
        connection = socket.create_connection(server, TIMEOUT_S)
    except OSError:
        return False
    try:
        if tls:
            connection = _unverified().wrap_socket(connection, server_hostname=server[0])
        connection.sendall(_API_VERSIONS)
        connection.recv(1)
    except TimeoutError:
        return True
    except (OSError, ValueError):
        return False
    finally:
        connection.close()
    return False


def speaks_tls(server: Server) -> bool:
    """Return True if the server completes a TLS handshake. The certificate is not verified."""
    try:
        shake_hands(_unverified(), server)
    except (OSError, ValueError):
        return False
    return True


def _unverified() -> ssl.SSLContext:
    """Return a TLS context that encrypts without verifying the peer."""
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    return anything


def shake_hands(context: ssl.SSLContext, server: Server) -> None:
    """Perform a TLS handshake. Raise ``OSError``, including ``ssl.SSLError``, if it fails."""
    with (
        socket.create_connection(server, TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname=server[0]),
    ):
        pass


def tls_trouble(
    cluster: ClusterAccess, server: Server, client_error: KafkaError | None
) -> str | None:
    """Return a sentence about the TLS problem at a server, or None if there is none.

    ``client_error`` is the last connection error that the client reported.
    """
    if cluster.spec.tls is None:
        if not speaks_tls(server):
            return None
        return (
            f"{format_server(server)} speaks TLS; set {cluster.field}.tls, or name the listener "
            "that takes plain text"
        )
    if why := _refused_certificate(cluster, server):
        return why
    if client_error is not None and "alert" in client_error.str():
        return _client_certificate_advice(cluster, server, client_error)
    return None


def _client_certificate_advice(
    cluster: ClusterAccess, server: Server, client_error: KafkaError
) -> str:
    where = format_server(server)
    own = cluster.spec.tls and cluster.spec.tls.client_certificate
    if not own:
        return f"{where} wants a client certificate; set {cluster.field}.tls.clientCertificate"
    if "certificate expired" in client_error.str() or _has_expired(cluster):
        return (
            f"{where} does not accept the client certificate in Secret {own.secret_name}: it has "
            "expired; renew it"
        )
    return (
        f"{where} does not accept the client certificate in Secret {own.secret_name}; have it "
        f"signed by an authority that {cluster.alias} trusts, or name another in "
        f"{cluster.field}.tls.clientCertificate"
    )


def _has_expired(cluster: ClusterAccess) -> bool:
    """Return True if the client certificate of this cluster has expired.

    Brokers report an expired client certificate in the same way as an unknown one.
    """
    try:
        return end_of(read_credentials(cluster).certificate) < datetime.now(UTC)
    except (SecretMissing, *UNREADABLE):
        return False


def _refused_certificate(cluster: ClusterAccess, server: Server) -> str | None:
    """Return a sentence about the problem with the listener's certificate, or None.

    A listener without TLS is also such a problem.
    """
    try:
        context = ssl.create_default_context(cadata=read_credentials(cluster).trusted or None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is less strict
        shake_hands(context, server)
    except ssl.SSLCertVerificationError as error:
        return (
            f"the certificate of {format_server(server)} is refused: "
            f"{error.verify_message.rstrip('.')}; {_trust_advice(cluster, error)}"
        )
    except (ssl.SSLError, ConnectionError):
        return (
            f"{format_server(server)} does not speak TLS; leave {cluster.field}.tls out, or name "
            "the listener that does"
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
    named = ", ".join(map(str, trusted)) or "not set: the system certificates apply"
    return (
        f"{cluster.field}.tls.trustedCertificates ({named}) must hold the authority that signed it"
    )


_FROZEN = (
    "accepts connections and does not answer: it is frozen or overloaded, or the network drops "
    "what it sends; check that broker"
)


def diagnose(
    cluster: ClusterAccess, tried: str, failure: HeadraceError, client_error: KafkaError | None
) -> HeadraceError:
    """Return a more precise error for ``failure`` if the cause is found, otherwise ``failure``.

    ``client_error`` is the last connection error that the client reported. The call connects to
    brokers and may take some seconds.
    """
    if not isinstance(failure, Unreachable | AuthenticationFailed | TlsFailed):
        return failure
    if why_no_login := _login_trouble(cluster, tried, client_error):
        return why_no_login
    if (server := first_listening(cluster)) is None:
        return Unreachable(f"could not {tried}: {_why_none_listens(cluster)}")
    if why := tls_trouble(cluster, server, client_error):
        return TlsFailed(f"could not {tried}: {why}")
    if isinstance(failure, Unreachable) and (why := _broker_trouble(cluster, server, client_error)):
        return Unreachable(f"could not {tried}: {why}")
    return failure


def _login_trouble(
    cluster: ClusterAccess, tried: str, client_error: KafkaError | None
) -> AuthenticationFailed | None:
    if (trouble := token_trouble(cluster)) is not None:
        return TokenUnavailable(f"could not {tried}: {trouble}")
    if client_error is None or client_error.code() != KafkaError._AUTHENTICATION:
        return None
    advice = _login_advice(cluster, client_error)
    return AuthenticationFailed(f"could not {tried}: {error_text(client_error)}; {advice}")


def is_advertised(cluster: ClusterAccess, client_error: KafkaError) -> bool:
    """Return True for a failed connection to an address that a broker advertises."""
    broker = _broker(client_error)
    refused = client_error.code() in {KafkaError._RESOLVE, KafkaError._TRANSPORT}
    return refused and broker is not None and broker.server not in bootstrap_servers(cluster)


def _broker_trouble(
    cluster: ClusterAccess, server: Server, client_error: KafkaError | None
) -> str | None:
    """Return a sentence about a failing broker behind a reachable bootstrap server, or None."""
    if client_error is None or (broker := _broker(client_error)) is None:
        if silent := silent_servers(cluster):
            return f"{' and '.join(silent)} {_FROZEN}"
        if cluster.spec.authentication is not None:
            return None
        return (
            f"{format_server(server)} is open, and no broker answers there; where its listener "
            f"wants a login, set {cluster.field}.authentication"
        )
    if client_error.code() in {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}:
        return f"broker {broker.id} ({broker.server}) {_FROZEN}"
    if not is_advertised(cluster, client_error):
        return None
    return (
        f"broker {broker.id} advertises {broker.server}, which cannot be reached from here "
        f"({error_text(client_error)}), while a bootstrap server can; if that broker runs, correct "
        f"its advertised.listeners, or name the listener meant for this network in {cluster.field}."
        "bootstrapServers"
    )


class _Broker(NamedTuple):
    server: str
    id: str


def _broker(client_error: KafkaError) -> _Broker | None:
    """Return the broker that an error message names, or None.

    An example of such a message is ``sasl_ssl://kafka-1:9093/1: Connect to ... failed``.
    """
    found = re.match(r"(?:\w+://)?([^\s/]+:\d+)/(\d+): ", client_error.str())
    return _Broker(found[1], found[2]) if found else None


_IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""Environment variable that is set in every container of a Kubernetes cluster."""
_IN_CLUSTER = re.compile(r"\.svc(\.[\w.-]+)?:\d+$")
_OUTSIDE = (
    "these are names of a Kubernetes cluster, and this machine is outside it: a pod there can "
    "use them, and `headrace job` prints Jobs that run such commands"
)


def _why_none_listens(cluster: ClusterAccess) -> str:
    """Return the reason for each bootstrap server, and advice."""
    servers = bootstrap_servers(cluster)
    sentences = dict.fromkeys(map(why_unreachable, servers))
    if not os.environ.get(_IN_A_POD) and all(_IN_CLUSTER.search(one) for one in servers):
        return "; ".join([*sentences, _OUTSIDE])
    advice = (
        f"correct {cluster.field}.bootstrapServers, or start the brokers; one whose disk is full "
        "ends itself, and says so in its log"
    )
    return "; ".join([*sentences, advice])


def _login_advice(cluster: ClusterAccess, client_error: KafkaError) -> str:
    if "Request not valid in current SASL state" in client_error.str():
        return f"the listener wants no login; leave {cluster.field}.authentication out"
    login = cluster.spec.authentication
    if login is not None and login.oauth is not None:
        return (
            f"the brokers refuse the token of client {login.oauth.client_id}; check "
            f"{cluster.field}.authentication.oauth beside the issuer, audience and keys that the "
            "brokers expect: their log says which does not fit"
        )
    if login is None or login.password is None:
        return f"check {cluster.field}.authentication"
    named = login.username_from
    user = f"in {named.key} of Secret {named.secret_name}" if named else login.username
    return (
        f"check {cluster.field}.authentication: type {login.type}, username {user}, and "
        f"the key {login.password.key} of Secret {login.password.secret_name}"
    )
