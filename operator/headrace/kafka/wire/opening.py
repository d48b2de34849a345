"""From an address to a connection that requests can be sent on: TCP, TLS, versions, login."""

import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.api import ClusterAccess
from headrace.api.client_settings import text_of
from headrace.errors import GaveUp, HeadraceError, Unreachable
from headrace.kafka.errors import TlsFailed
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.loop import WRITE, EventLoop
from headrace.kafka.wire.protocol import Headers
from headrace.kafka.wire.replies import Reply
from headrace.kafka.wire.security import ClientSecurity
from headrace.kafka.wire.session import begin_session
from headrace.kafka.wire.transport import Encrypted, Plain, Transport

_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of a client's connections and fetches."""

    client_id: str = "headrace"
    connect_timeout_s: float = 10.0
    """For TCP, TLS and login together: Kafka's ``socket.connection.setup.timeout.ms``."""
    request_timeout_s: float = 30.0
    """Kafka's ``request.timeout.ms``."""
    max_in_flight: int = 5
    """Requests without an answer, a connection; the most with which sequences are safe."""
    send_buffer_bytes: int = 0
    """0: the operating system decides."""
    receive_buffer_bytes: int = 0
    """0: the operating system decides."""
    address_family: int = socket.AF_UNSPEC
    fetch_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 4 << 20
    partition_bytes: int = 1 << 20

    @classmethod
    def of(cls, cluster: ClusterAccess) -> "ConnectionSettings":
        """Read the settings of a cluster's ``config`` (``api.client_settings.SUPPORTED``)."""
        text = partial(text_of, cluster.spec.config)
        return cls(
            client_id=text("client.id"),
            connect_timeout_s=int(text("socket.connection.setup.timeout.ms")) / 1000,
            request_timeout_s=int(text("request.timeout.ms")) / 1000,
            send_buffer_bytes=int(text("send.buffer.bytes")),
            receive_buffer_bytes=int(text("receive.buffer.bytes")),
            address_family=_FAMILIES[text("broker.address.family")],
            fetch_wait_ms=int(text("fetch.max.wait.ms")),
            fetch_min_bytes=int(text("fetch.min.bytes")),
            fetch_max_bytes=int(text("fetch.max.bytes")),
            partition_bytes=int(text("max.partition.fetch.bytes")),
        )


@dataclass(frozen=True, slots=True)
class Server:
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Opener:
    """Opens connections of one cluster, on one loop."""

    def __init__(
        self,
        loop: EventLoop,
        security: ClientSecurity,
        buffers: Buffers,
        settings: ConnectionSettings,
    ) -> None:
        self._loop, self._security, self._settings = loop, security, settings
        self._buffers, self._headers = buffers, Headers(settings.client_id)

    async def open(
        self, server: Server, closed: Callable[[Connection], None] = lambda _: None
    ) -> Connection:
        """Open a connection; raise ``Unreachable``, ``AccessDenied`` and ``UnsupportedBroker``."""
        try:
            return await self._open(server, closed)
        except (OSError, UnicodeError) as error:
            # This is an error of this machine: too many open files, a full disk, an invalid name.
            # The caller tries again. Any error that is not ours would end the loop and the driver.
            raise Unreachable(f"{server} cannot be reached: {error}") from error

    async def _open(self, server: Server, closed: Callable[[Connection], None]) -> Connection:
        deadline_s = self._loop.now_s() + self._settings.connect_timeout_s
        context = self._security.context()
        last: HeadraceError = Unreachable(f"{server} has no address")
        for family, address in await self._addresses(server):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                transport = await self._connect(sock, address, server, context, deadline_s)
            except HeadraceError as error:
                sock.close()
                last = error
                continue
            connection = Connection(
                self._loop,
                transport,
                str(server),
                headers=self._headers,
                buffers=self._buffers,
                request_timeout_s=self._settings.request_timeout_s,
                max_in_flight=self._settings.max_in_flight,
                closed=closed,
            )
            left_s = deadline_s - self._loop.now_s()
            try:
                await begin_session(self._loop, connection, self._security, max(left_s, 0.0))
            except HeadraceError as error:
                connection.close(error)
                raise
            return connection
        raise last

    async def _addresses(self, server: Server) -> list[tuple[int, Any]]:
        with suppress(ValueError):  # no name: nothing to look up
            ip = ipaddress.ip_address(server.host)
            family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
            return [(family, (server.host, server.port))]
        try:
            found = await self._loop.in_thread(
                lambda: socket.getaddrinfo(
                    server.host,
                    server.port,
                    family=self._settings.address_family,
                    type=socket.SOCK_STREAM,
                )
            )
        except OSError as error:
            raise Unreachable(f"the name {server.host} cannot be resolved: {error}") from error
        return [(family, address) for family, _, _, _, address in found]

    async def _connect(
        self,
        sock: socket.socket,
        address: Any,
        server: Server,
        context: ssl.SSLContext | None,
        deadline_s: float,
    ) -> Transport:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
            (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
        ):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        try:
            with suppress(BlockingIOError):
                sock.connect(address)
            await self._ready(sock, WRITE, deadline_s)
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
        except (OSError, GaveUp) as error:
            raise Unreachable(f"{server} cannot be reached: {error}") from error
        if context is None:
            return Plain(sock)
        encrypted = Encrypted(sock, context, server.host)  # the socket is its own from here on
        try:
            while not encrypted.shake_hands():
                await self._ready(encrypted.sock, encrypted.wants, deadline_s)
        except (OSError, GaveUp) as error:
            encrypted.sock.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                why = error.verify_message.rstrip(".")
                raise TlsFailed(f"the certificate of {server} is refused: {why}") from error
            raise TlsFailed(f"no encrypted connection to {server}: {error}") from error
        return encrypted

    async def _ready(self, sock: socket.socket, event: int, deadline_s: float) -> None:
        """Wait for it; raises ``GaveUp``."""
        come: Reply[None] = Reply()
        late = self._loop.call_later(
            max(0.0, deadline_s - self._loop.now_s()),
            lambda: come.fail(GaveUp(f"no answer in {self._settings.connect_timeout_s:g} s")),
        )
        self._loop.watch(sock, event, lambda _: come.succeed(None))
        try:
            await come
        finally:
            late.cancel()
            self._loop.forget(sock)
