"""How Spark's own Kafka client gets in: TLS and SASL, as options of its source.

They hold passwords: they go from Python to the JVM and to executors, and are shown nowhere (Kafka
hides them in its logs, ``session.py`` has Spark do so).
"""

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from headrace.api import AuthenticationType, ClusterAccess
from headrace.errors import InvalidSpec
from headrace.kafka import MECHANISMS, protocol, read_credentials

_LOGIN_MODULES = {
    AuthenticationType.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    AuthenticationType.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    AuthenticationType.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def security_options(cluster: ClusterAccess) -> dict[str, str]:
    """Options of Spark's Kafka source; raises ``SecretMissing``, ``InvalidSpec`` for a bad key."""
    credentials = read_credentials(cluster)
    settings = {"security.protocol": protocol(cluster)}
    if login := cluster.spec.authentication:
        module = _LOGIN_MODULES[login.type]
        settings |= {
            "sasl.mechanism": MECHANISMS[login.type],
            "sasl.jaas.config": (
                f"{module} required username={_quoted(login.username or '')} "
                f"password={_quoted(credentials.password)};"
            ),
        }
    if credentials.trusted:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": credentials.trusted,
        }
    if credentials.certificate:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": credentials.certificate,
            "ssl.keystore.key": _pkcs8(cluster, credentials.private_key),
        }
    return {f"kafka.{name}": value for name, value in settings.items()}


def _quoted(text: str) -> str:
    """As a JAAS configuration takes text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _pkcs8(cluster: ClusterAccess, key: str) -> str:
    """Java reads this form of a private key only; cert-manager's default, for one, is another."""
    try:
        private_key = load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise InvalidSpec(
            f"the private key of {cluster.field}.tls.clientCertificate cannot be read ({error}): "
            "it must be PEM, without a passphrase"
        ) from None
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
