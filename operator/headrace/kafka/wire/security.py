"""TLS and login of a cluster, from its manifest and the files as they are at each connection."""

import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.api import ClusterAccess
from headrace.kafka.security import (
    MECHANISMS,
    Credentials,
    read_credentials,
    tokens_of,
    unusable_files,
)
from headrace.kafka.wire.loop import EventLoop


@dataclass(frozen=True, repr=False)
class Login:
    """Credentials for SASL. Never log or store them."""

    mechanism: str
    """Kafka's name of it."""
    username: str = ""
    password: str = ""
    """Password, or token of OAUTHBEARER."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """Extensions of OAUTHBEARER, which are sent to the broker with the token."""


class ClientSecurity:
    """Reads Secrets at each connection, so that a changed one needs no restart."""

    def __init__(self, cluster: ClusterAccess) -> None:
        self._cluster = cluster
        self._tokens = tokens_of(cluster)
        self._known: tuple[str, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext | None:
        """For the next connection; ``None``: plain text. Raises ``SecretMissing``, ``TlsFailed``.

        The same one while the files are, so that TLS sessions can be resumed.
        """
        if self._cluster.spec.tls is None:
            return None
        credentials = read_credentials(self._cluster)
        if self._known is None or self._known[0] != credentials.digest:
            self._known = credentials.digest, _context(self._cluster, credentials)
        return self._known[1]

    async def login(self, loop: EventLoop) -> Login | None:
        """Return the credentials for the next login; None if there is none.

        Raise ``SecretMissing``, ``TokenUnavailable``.
        """
        if (wanted := self._cluster.spec.authentication) is None:
            return None
        if (tokens := self._tokens) is not None and (oauth := wanted.oauth) is not None:
            if (token := tokens.at_hand()) is None:
                token = await loop.in_thread(tokens.get, alone=True)
            name = MECHANISMS[wanted.type]
            return Login(name, oauth.client_id, token.value, oauth.extensions)
        found = read_credentials(self._cluster)
        return Login(MECHANISMS[wanted.type], found.username, found.password)

    def refused(self, login: Login) -> None:
        """Discard a token that the broker has rejected; another one may be accepted."""
        if self._tokens is not None:
            self._tokens.discard(login.password)


def _context(cluster: ClusterAccess, credentials: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=credentials.trusted or None)
    except (ssl.SSLError, ValueError) as error:
        raise unusable_files(cluster, f"ssl.ca.pem: {error}") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not that strict
    if credentials.certificate:
        # The module reads them only from files, which are deleted before anything else runs.
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            for file, content in (
                (certificate, credentials.certificate),
                (key, credentials.private_key),
            ):
                file.touch(mode=0o600)
                file.write_text(content)
            try:
                context.load_cert_chain(certificate, key, password="")  # encrypted: refused
            except (ssl.SSLError, ValueError) as error:
                named = "ssl.key.pem" if "KEY" in str(error) else "ssl.certificate.pem"
                raise unusable_files(cluster, f"{named}: {error}") from None
    return context
