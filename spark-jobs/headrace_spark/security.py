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

from headrace.api import AuthenticationType, ClusterAccess, OAuth
from headrace.errors import InvalidSpec
from headrace.kafka import MECHANISMS, Credentials, protocol, read_credentials

_OAUTH = "org.apache.kafka.common.security.oauthbearer"

_LOGIN_MODULES = {
    AuthenticationType.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    AuthenticationType.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    AuthenticationType.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def security_options(cluster: ClusterAccess) -> dict[str, str]:
    """Options of Spark's Kafka source; raises ``SecretMissing``, ``InvalidSpec`` for a bad key."""
    credentials = read_credentials(cluster)
    settings = {"security.protocol": protocol(cluster)}
    login = cluster.spec.authentication
    if login is not None and login.oauth is not None:
        settings |= _token_settings(login.oauth, credentials)
    elif login is not None:
        module = _LOGIN_MODULES[login.type]
        settings |= {
            "sasl.mechanism": MECHANISMS[login.type],
            "sasl.jaas.config": (
                f"{module} required username={_quoted(credentials.username)} "
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


def _token_settings(oauth: OAuth, credentials: Credentials) -> dict[str, str]:
    """Kafka's own client asks for tokens by itself (KIP-768). From its version 3.9.1 on it may be
    kept from that by the system property org.apache.kafka.sasl.oauthbearer.allowed.urls."""
    options = {"clientId": oauth.client_id, "clientSecret": credentials.client_secret}
    if oauth.scope is not None:
        options["scope"] = oauth.scope
    options |= {f"extension_{name}": value for name, value in oauth.extensions.items()}
    if credentials.token_trusted:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = credentials.token_trusted
    written = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return {
        "sasl.mechanism": MECHANISMS[AuthenticationType.OAUTH_BEARER],
        "sasl.oauthbearer.token.endpoint.url": oauth.token_endpoint,
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required {written};",
    }


def _quoted(text: str) -> str:
    """As a JAAS configuration takes text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


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
