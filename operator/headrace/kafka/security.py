"""TLS and SASL settings, credentials and OAuth tokens of clients."""

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.api import AuthenticationType, ClusterAccess, OAuth, SecretUse
from headrace.api.cluster import Authentication
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.errors import SecretMissing, TlsFailed, TokenUnavailable
from headrace.kafka.token_endpoint import Token, request_token
from headrace.logs import get_logger
from headrace.timing import Backoff, Clock

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


@dataclass(frozen=True, repr=False)
class Credentials:
    """Credentials of a cluster, with empty fields where none is needed. Never log or store them."""

    trusted: str = ""
    """Concatenated certificates of the trusted authorities, in PEM."""
    certificate: str = ""
    """Certificate chain of the client, in PEM."""
    private_key: str = ""
    """Private key of the client, in PEM."""
    username: str = ""
    password: str = ""
    client_secret: str = ""
    """Secret of the OAuth client at the token endpoint."""
    token_trusted: str = ""
    """Trusted authorities of the token endpoint's certificate, in PEM."""

    @property
    def digest(self) -> str:
        """Hash over all fields. It changes when a file changes."""
        content = (getattr(self, field.name).encode() for field in fields(self))
        parts = (hashlib.sha256(part).digest() for part in content)
        return hashlib.sha256(b"".join(parts)).hexdigest()


def read_credentials(cluster: ClusterAccess) -> Credentials:
    """Read the credentials from the mounted Secret files.

    Raise ``SecretMissing``, which names the Secret, the key and the field of the manifest.
    """
    found = {
        use.field: read_secret(cluster.secrets, cluster.field, use) for use in cluster.spec.uses()
    }
    login = cluster.spec.authentication
    return Credentials(
        trusted=_joined(found, "tls.trustedCertificates"),
        certificate=found.get("tls.clientCertificate.certificateKey", ""),
        private_key=found.get("tls.clientCertificate.privateKeyKey", ""),
        # Editors and `echo` add a line break, which is no part of a user name or password.
        username=(login and login.username)
        or found.get("authentication.usernameFrom", "").rstrip("\r\n"),
        password=found.get("authentication.password", "").rstrip("\r\n"),
        client_secret=found.get("authentication.oauth.clientSecret", "").rstrip("\r\n"),
        token_trusted=_joined(found, "authentication.oauth.trustedCertificates"),
    )


def _joined(found: Mapping[str, str], list_: str) -> str:
    return "\n".join(text for field, text in found.items() if field.startswith(list_))


def read_secret(secrets: Path | None, field: str, use: SecretUse) -> str:
    """Return the content of a key in the folder of Secrets.

    Raise ``SecretMissing``, which names the key and the field of the manifest. ``field`` is the
    start of the field's name.
    """
    wanted = f"which {field}.{use.field} wants"
    if secrets is None:
        raise SecretMissing(
            f"there is no {use.holder}, {wanted}: put it into the manifest, or name a "
            "folder of Secrets with --secrets"
        )
    secret = secrets / use.folder
    other = secret / use.other_key
    if use.other_key and other.is_file() and not (secret / use.key).exists():
        use = use._replace(key=use.other_key)
    try:
        if (content := (secret / use.key).read_text(encoding="utf-8")).strip():
            return content
        why = f"the key {use.key} of {use.holder}, {wanted}, is empty"
    except (FileNotFoundError, NotADirectoryError):
        keys = f"{use.key} or {use.other_key}" if use.other_key else use.key
        why = f"{use.holder} has no key {keys}, {wanted}"
        if secret.is_dir() and not any(secret.glob("[!.]*")):
            # The kubelet mounts a missing Secret as an empty folder.
            why = f"there is no {use.holder}, or it is empty, {wanted}"
        elif not secret.is_dir():
            why = f"there is no {use.holder}, {wanted} (searched in {secrets})"
    except OSError as error:
        why = f"{secret / use.key}, {wanted}, cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        why = f"the key {use.key} of {use.holder}, {wanted}, is not text"
    raise SecretMissing(why)


UNREADABLE = (ValueError, LookupError)
"""Errors that ``subject_of`` and ``end_of`` raise for an unreadable certificate."""


def subject_of(pem: str) -> str:
    """Return the subject of the first certificate as Java writes it (RFC 2253).

    Raises:
        ValueError: If there is no certificate.
        LookupError: If an attribute has no name in RFC 2253. Java writes those in hexadecimal.
    """
    subject = _certificate(pem).subject
    for attribute in subject:
        if attribute.rfc4514_attribute_name == attribute.oid.dotted_string:
            raise LookupError(attribute.oid.dotted_string)
    return subject.rfc4514_string()


def end_of(pem: str) -> datetime:
    """Return the time at which the first certificate expires.

    Raises:
        ValueError: If there is no certificate.
    """
    return _certificate(pem).not_valid_after_utc


def _certificate(pem: str) -> "Certificate":
    from cryptography import x509  # noqa: PLC0415 - 10 MB, only for certificates

    return x509.load_pem_x509_certificate(pem.encode())


# OAuth tokens. A process has one cache for each endpoint and client. A token is replaced after
# three quarters of its lifetime. If the endpoint is unreachable, the request is repeated, and
# clients use their token until it expires.

log = get_logger(__name__)

_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.5, 5.0


class _Key(NamedTuple):
    """Key of a token cache."""

    oauth: str
    """The OAuth settings, as JSON."""
    secrets: Path | None
    """Folder of the Secrets. Two folders may contain different Secrets with equal names."""


class Tokens:
    """Token cache of one client at one endpoint. Thread-safe."""

    def __init__(self, cluster: ClusterAccess, oauth: OAuth, clock: Clock = time) -> None:
        self._cluster, self._oauth, self._clock = cluster, oauth, clock
        self._token: Token | None = None
        self._asking = threading.Lock()
        self._backoff = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
        self._not_before_s = 0.0
        self.trouble: HeadraceError | None = None
        """Error of the last request for a token, or None if it succeeded."""

    def get(self) -> Token:
        """Return a valid token. Wait for the endpoint if the token must be replaced.

        Raise ``TokenUnavailable`` or ``SecretMissing`` if there is no valid token.
        """
        if (token := self.cached_token()) is not None:
            return token
        with self._asking:
            if (token := self.cached_token()) is not None:  # another thread has asked
                return token
            try:
                return self._ask()
            except Retriable:
                if (token := self.good()) is not None:
                    return token
                raise

    def cached_token(self) -> Token | None:
        """Return the token if it need not be replaced yet, or None. Sends no request."""
        token = self.good()
        return token if token is not None and self._clock.monotonic() < token.renewed_s else None

    def good(self) -> Token | None:
        """Return the last token if it has not expired, or None."""
        token = self._token
        return token if token is not None and self._clock.monotonic() < token.expires_s else None

    def discard(self, token: str | None = None) -> None:
        """Discard a token that brokers rejected, or the current token if ``token`` is None."""
        known = self._token
        if known is None or token not in (None, known.value):
            return
        # Keep a recent token: if the login fails for another reason, each attempt would request a
        # token.
        if self._clock.monotonic() - known.received_s > _LAST_BACKOFF_S:
            self._token = None

    def _ask(self) -> Token:
        if self.trouble is not None and self._clock.monotonic() < self._not_before_s:
            raise type(self.trouble)(str(self.trouble))
        field = f"{self._cluster.field}.authentication.oauth"
        try:
            found = read_credentials(self._cluster)
            token = request_token(
                self._oauth, field, found.client_secret, found.token_trusted, clock=self._clock
            )
        except Retriable as error:
            if str(error) != str(self.trouble):
                log.warning("no token", cluster=self._cluster.alias, why=str(error))
            self.trouble = error
            self._not_before_s = self._clock.monotonic() + self._backoff.next_s()
            raise
        if self.trouble is not None:
            log.info("tokens again", cluster=self._cluster.alias)
        self._token, self.trouble, self._not_before_s = token, None, 0.0
        self._backoff.reset()
        return token


_known: dict[_Key, Tokens] = {}
_making = threading.Lock()


def tokens_of(cluster: ClusterAccess) -> Tokens | None:
    """Return the token cache of a cluster with ``type: OAuthBearer``, otherwise None."""
    login = cluster.spec.authentication
    if login is None or login.oauth is None:
        return None
    key = _Key(login.oauth.model_dump_json(), cluster.secrets)
    with _making:
        if key not in _known:
            _known[key] = Tokens(cluster, login.oauth)
        return _known[key]


def token_trouble(cluster: ClusterAccess) -> TokenUnavailable | None:
    """Return the error of the last token request if the cluster has no valid token, or None.

    None also if the cluster needs no token.
    """
    tokens = tokens_of(cluster)
    if tokens is None or tokens.good() is not None:
        return None
    return tokens.trouble if isinstance(tokens.trouble, TokenUnavailable) else None


MECHANISMS = {
    AuthenticationType.PLAIN: "PLAIN",
    AuthenticationType.SCRAM_SHA_256: "SCRAM-SHA-256",
    AuthenticationType.SCRAM_SHA_512: "SCRAM-SHA-512",
    AuthenticationType.OAUTH_BEARER: "OAUTHBEARER",
}
"""Kafka's names of the SASL mechanisms."""

_ASKED_AGAIN_S = 2.0
"""Minimum token lifetime that is reported to librdkafka, in seconds.

If there is no new token, librdkafka therefore requests one again after about this time.
"""

# Start of a librdkafka setting that contains a file's content, and the field that names the file.
_FIELDS = {
    "ssl.ca.": "trustedCertificates",
    "ssl.certificate.": "clientCertificate.certificateKey",
    "ssl.key.": "clientCertificate.privateKeyKey",
}


def protocol(cluster: ClusterAccess) -> str:
    """Return the value of Kafka's ``security.protocol``."""
    encrypted, login = cluster.spec.tls is not None, cluster.spec.authentication is not None
    return {
        (False, False): "PLAINTEXT",
        (True, False): "SSL",
        (False, True): "SASL_PLAINTEXT",
        (True, True): "SASL_SSL",
    }[encrypted, login]


def security_settings(cluster: ClusterAccess) -> dict[str, Any]:
    """Return the security settings of librdkafka.

    With ``type: OAuthBearer`` the call waits for a token. A client without a token would fail after
    ten seconds without giving a reason.

    Raises:
        SecretMissing: A file of a Secret is missing.
        TokenUnavailable: There is no valid token.
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
        settings["ssl.endpoint.identification.algorithm"] = "https"  # verify the host name
    if credentials.trusted:
        settings["ssl.ca.pem"] = credentials.trusted
    if credentials.certificate:
        settings["ssl.certificate.pem"] = credentials.certificate
        settings["ssl.key.pem"] = credentials.private_key
    return settings


def _token(
    tokens: Tokens, extensions: dict[str, str], _: str
) -> tuple[str, float, str, dict[str, str]]:
    """Return the token, its lifetime, its subject and the extensions, for librdkafka.

    librdkafka calls this in a client thread at the start, and again after 80 % of the returned
    lifetime. The function never raises, because a client waits ten seconds after a failure. If
    there is no token, it returns the text ``none``, which brokers reject.
    """
    now_s = time.time()
    try:
        token = tokens.get()
    except HeadraceError:
        return "none", now_s + _ASKED_AGAIN_S, "", extensions
    asked_again_s = max((token.renewed_s - time.monotonic()) / 0.8, _ASKED_AGAIN_S)
    return token.value, now_s + asked_again_s, token.subject, extensions


def unusable_files(cluster: ClusterAccess, reason: str) -> TlsFailed:
    """Return the error for certificate or key files that the client cannot use.

    ``reason`` is the client's message.
    """
    named = next((field for setting, field in _FIELDS.items() if setting in reason), "")
    fields = [use for use in cluster.spec.uses() if use.field.startswith("tls.")]
    concerned = [use for use in fields if named.partition(".")[0] in use.field] or fields
    files = ", ".join(dict.fromkeys(map(str, concerned)))
    return TlsFailed(
        f"could not use {files} for {cluster.name}: {reason}; {cluster.field}.tls wants PEM files, "
        "and a private key that fits its certificate"
    )


def principal_of(cluster: ClusterAccess) -> str:
    """Return the principal of the client, as ``User:<name>``.

    The name is the SASL user, the token's subject or the certificate's subject. Without any of them
    the principal is ``User:ANONYMOUS``.
    """
    spec = cluster.spec
    if spec.authentication is not None and spec.authentication.oauth is None:
        return f"User:{_username(cluster, spec.authentication)}"
    if (tokens := tokens_of(cluster)) is not None:
        try:
            if subject := tokens.get().subject:
                return f"User:{subject}"
        except HeadraceError:
            pass  # every request to this cluster reports the reason
        return "User:<claim sub of the token>"
    if spec.tls is None or (own := spec.tls.client_certificate) is None:
        return "User:ANONYMOUS"
    try:
        return f"User:{subject_of(read_credentials(cluster).certificate)}"
    except (SecretMissing, *UNREADABLE):
        return f"User:<subject of the certificate in Secret {own.secret_name}>"


def _username(cluster: ClusterAccess, login: Authentication) -> str:
    if login.username_from is None:
        return login.username or ""
    try:
        return read_credentials(cluster).username
    except SecretMissing:
        return f"<{login.username_from.key} of Secret {login.username_from.secret_name}>"
