"""Bytes in and out of a non-blocking socket, plain or encrypted."""

import socket
import ssl
from collections.abc import Sequence
from typing import Protocol

from headrace.kafka.wire.loop import READ, WRITE
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
        """How many bytes came; 0: the other side has closed."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """How many bytes of them were taken, from the first on."""
        ...


class Plain:
    """TCP."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.wants = 0

    def shake_hands(self) -> bool:
        """There is none."""
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
    """TLS; the context verifies the certificate and its name."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.sock: ssl.SSLSocket = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )
        self.wants = 0

    def shake_hands(self) -> bool:
        """One step of it."""
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
