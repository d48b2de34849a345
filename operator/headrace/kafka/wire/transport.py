"""Sockets, plain or encrypted, and the TLS and login of a cluster."""

import socket
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.api import ClusterAccess
from headrace.kafka.security import (
    MECHANISMS,
    Credentials,
    read_credentials,
    tokens_of,
    unusable_files,
)
from headrace.kafka.wire.loop import READ, WRITE, EventLoop
from headrace.kafka.wire.protocol import Buffer

MOST_BUFFERS = 512
"""Maximum number of buffers of one ``send``; the kernel accepts 1,024."""

_TLS_RECORD_BYTES = 16_384


class Transport(Protocol):
    """Socket with or without TLS.

    ``receive`` and ``send`` return None if the socket is not ready; ``wants`` then says for what.
    """

    @property
    def sock(self) -> socket.socket:
        """To watch, and to close."""
        ...

    wants: int
    """``WRITE`` where reading has to write first (TLS), else 0."""

    def shake_hands(self) -> bool:
        """Whether the handshake is done; raises ``OSError`` and ``ssl.SSLError``."""
        ...

    def receive(self, into: memoryview) -> int | None:
        """Return the number of bytes received; 0 if the peer has closed the connection."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send buffers and return the number of bytes that were sent."""
        ...


class Plain:
    """Plaintext TCP connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.wants = 0

    def shake_hands(self) -> bool:
        """Return True: plaintext has no handshake."""
        return True

    def receive(self, into: memoryview) -> int | None:
        try:
            return self.sock.recv_into(into)
        except BlockingIOError:
            return None

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send several buffers in one call."""
        try:
            return self.sock.sendmsg(buffers)
        except BlockingIOError:
            return None


class Encrypted:
    """TLS connection. The context verifies the certificate and its name."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.sock: ssl.SSLSocket = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )
        self.wants = 0

    def shake_hands(self) -> bool:
        """Run one step of the handshake."""
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.wants = READ
            return False
        except ssl.SSLWantWriteError:
            self.wants = WRITE
            return False
        self.wants = 0
        return True

    def receive(self, into: memoryview) -> int | None:
        """Receive bytes.

        TLS may hold decrypted bytes that the selector cannot see: read until None.
        """
        try:
            count = self.sock.recv_into(into)
        except ssl.SSLWantReadError:
            self.wants = 0
            return None
        except ssl.SSLWantWriteError:
            self.wants = WRITE
            return None
        except ssl.SSLZeroReturnError:
            return 0
        self.wants = 0
        return count

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send what fills one record of TLS, which copies the data in any case."""
        record: Buffer = buffers[0]
        if len(record) < _TLS_RECORD_BYTES:
            joined = bytearray()
            for buffer in buffers:
                joined += buffer[: _TLS_RECORD_BYTES - len(joined)]
                if len(joined) == _TLS_RECORD_BYTES:
                    break
            record = joined
        try:
            return self.sock.send(record)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None


@dataclass(frozen=True, repr=False)
class Login:
    """Credentials for SASL. Never log or store them."""

    mechanism: str
    """Kafka's name of the mechanism."""
    username: str = ""
    password: str = ""
    """Password, or token of OAUTHBEARER."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """Extensions of OAUTHBEARER, which are sent to the broker with the token."""


class ClientSecurity:
    """Reads Secrets for each connection, so that a changed Secret needs no restart."""

    def __init__(self, cluster: ClusterAccess) -> None:
        self._cluster = cluster
        self._tokens = tokens_of(cluster)
        self._known: tuple[str, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context for the next connection, or None for plaintext.

        The context is reused until the files change, so that TLS sessions can be resumed. Raise
        ``SecretMissing`` or ``TlsFailed``.
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
