"""Sockets with and without TLS, and the TLS context and login of a cluster."""

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

MAX_BUFFERS = 512
"""Maximum number of buffers for one ``send``. The kernel accepts 1,024."""

_TLS_RECORD_BYTES = 16_384


class Transport(Protocol):
    """Socket with or without TLS.

    ``receive`` and ``send`` return None if the socket is not ready. ``wants`` then contains the
    event to wait for.
    """

    @property
    def sock(self) -> socket.socket:
        """The socket to watch and to close."""
        ...

    wants: int
    """Event that the last operation must wait for, or 0.

    With TLS, reading may have to write first.
    """

    def shake_hands(self) -> bool:
        """Continue the handshake, and return True if it is complete.

        Raise ``OSError`` or ``ssl.SSLError``.
        """
        ...

    def receive(self, into: memoryview) -> int | None:
        """Receive bytes, and return their number, or 0 if the peer has closed the connection."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send buffers, and return the number of bytes that were sent."""
        ...


class Plain:
    """Plaintext TCP connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.wants = 0

    def shake_hands(self) -> bool:
        """Return True, because plaintext has no handshake."""
        return True

    def receive(self, into: memoryview) -> int | None:
        try:
            return self.sock.recv_into(into)
        except BlockingIOError:
            return None

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send several buffers with one system call."""
        try:
            return self.sock.sendmsg(buffers)
        except BlockingIOError:
            return None


class Encrypted:
    """TLS connection. The context verifies the certificate and the host name."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.sock: ssl.SSLSocket = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )
        self.wants = 0

    def shake_hands(self) -> bool:
        """Continue the handshake, and return True if it is complete."""
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
        """Receive bytes, and return their number, or 0 if the peer has closed the connection.

        TLS may hold decrypted bytes that the selector cannot see, so callers read until None.
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
        """Send at most one TLS record. TLS copies the data anyway."""
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
    """TLS context and login of a cluster.

    Secrets are read for each connection, so that a changed Secret needs no restart.
    """

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
        """Return the credentials for the next login, or None if the cluster requires no login.

        Raise ``SecretMissing`` or ``TokenUnavailable``.
        """
        if (wanted := self._cluster.spec.authentication) is None:
            return None
        if (tokens := self._tokens) is not None and (oauth := wanted.oauth) is not None:
            if (token := tokens.cached_token()) is None:
                token = await loop.in_thread(tokens.get, alone=True)
            name = MECHANISMS[wanted.type]
            return Login(name, oauth.client_id, token.value, oauth.extensions)
        found = read_credentials(self._cluster)
        return Login(MECHANISMS[wanted.type], found.username, found.password)

    def refused(self, login: Login) -> None:
        """Discard a token that the broker rejected. Another token may be accepted."""
        if self._tokens is not None:
            self._tokens.discard(login.password)


def _context(cluster: ClusterAccess, credentials: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=credentials.trusted or None)
    except (ssl.SSLError, ValueError) as error:
        raise unusable_files(cluster, f"ssl.ca.pem: {error}") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is less strict
    if credentials.certificate:
        # The ssl module reads certificates only from files. The files are deleted again at once.
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            for file, content in (
                (certificate, credentials.certificate),
                (key, credentials.private_key),
            ):
                file.touch(mode=0o600)
                file.write_text(content)
            try:
                context.load_cert_chain(certificate, key, password="")  # rejects encrypted keys
            except (ssl.SSLError, ValueError) as error:
                named = "ssl.key.pem" if "KEY" in str(error) else "ssl.certificate.pem"
                raise unusable_files(cluster, f"{named}: {error}") from None
    return context
