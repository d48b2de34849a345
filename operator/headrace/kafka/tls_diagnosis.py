"""Why TLS with a listener fails, or is not what the manifest says: certificates of both sides."""

import ssl
from datetime import UTC, datetime

from confluent_kafka import KafkaError

from headrace.api import ClusterAccess
from headrace.kafka.certificate import UNREADABLE, end_of
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import SecretMissing
from headrace.kafka.listeners import Server, shake_hands, shown, speaks_tls


def tls_trouble(
    cluster: ClusterAccess, server: Server, client_error: KafkaError | None
) -> str | None:
    """What is wrong with TLS there; ``client_error`` as for ``diagnose``."""
    if cluster.spec.tls is None:
        if not speaks_tls(server):
            return None
        return (
            f"{shown(server)} speaks TLS; set {cluster.field}.tls, or name the listener that "
            "takes plain text"
        )
    if why := _refused_certificate(cluster, server):
        return why
    if client_error is not None and "alert" in client_error.str():
        return _client_certificate_advice(cluster, server, client_error)
    return None


def _client_certificate_advice(
    cluster: ClusterAccess, server: Server, client_error: KafkaError
) -> str:
    where = shown(server)
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
    """The client's own certificate. A broker in Java says only that it does not know it."""
    try:
        return end_of(read_credentials(cluster).certificate) < datetime.now(UTC)
    except (SecretMissing, *UNREADABLE):
        return False


def _refused_certificate(cluster: ClusterAccess, server: Server) -> str | None:
    """What is wrong with the listener's certificate, or with there being none."""
    try:
        context = ssl.create_default_context(cadata=read_credentials(cluster).trusted or None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not that strict
        shake_hands(context, server)
    except ssl.SSLCertVerificationError as error:
        return (
            f"the certificate of {shown(server)} is refused: {error.verify_message.rstrip('.')}; "
            f"{_trust_advice(cluster, error)}"
        )
    except (ssl.SSLError, ConnectionError):
        return (
            f"{shown(server)} does not speak TLS; leave {cluster.field}.tls out, or name the "
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
    named = ", ".join(map(str, trusted))
    return (
        f"{cluster.field}.tls.trustedCertificates ({named or 'none: those of the system'}) must "
        "hold the authority that signed it"
    )
