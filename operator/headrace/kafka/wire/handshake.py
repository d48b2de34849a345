"""Opens connections: TCP, TLS, supported versions and login."""

import base64
import hashlib
import hmac
import ipaddress
import os
import random
import secrets
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.api_versions.v3 import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse

from headrace.api import ClusterAccess
from headrace.api.client_settings import text_of
from headrace.errors import GaveUp, HeadraceError, Unreachable
from headrace.kafka.errors import AuthenticationFailed, TlsFailed
from headrace.kafka.wire.connection import ASK_VERSIONS, OLDEST_KAFKA, Connection
from headrace.kafka.wire.errors import Garbled, UnsupportedBroker
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.loop import WRITE, EventLoop, Reply, start
from headrace.kafka.wire.protocol import (
    REQUIRED,
    SASL_HANDSHAKE,
    Call,
    Encoded,
    Headers,
    Released,
    call,
)
from headrace.kafka.wire.transport import ClientSecurity, Encrypted, Login, Plain, Transport

Exchange = Generator[bytes, bytes, None]
"""SASL exchange that yields messages to send and receives the responses.

It ends when the login is complete.
"""

_ITERATIONS = range(4096, 1_000_001)
"""Accepted SCRAM iterations.

4,096 is Kafka's minimum. The maximum takes about a second, so that a broker cannot make this
process compute for hours.
"""
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def exchange(login: Login, nonce: str | None = None) -> Exchange:
    """Return the SASL exchange of a mechanism.

    The exchange raises ``AuthenticationFailed``. ``nonce`` is for tests.
    """
    if login.mechanism in _HASHES:
        return _scram(login, nonce or secrets.token_urlsafe(24))
    if login.mechanism == "PLAIN":
        return _plain(login)
    if login.mechanism == "OAUTHBEARER":
        return _oauth_bearer(login)
    raise AuthenticationFailed(f"SASL mechanism {login.mechanism} is not one of this client's")


def _plain(login: Login) -> Exchange:
    """Log in with PLAIN (RFC 4616)."""
    yield b"\0" + login.username.encode() + b"\0" + login.password.encode()


def _oauth_bearer(login: Login) -> Exchange:
    """Log in with OAUTHBEARER (RFC 7628).

    A broker that rejects the token sends the reason, and expects one more byte.
    """
    more = "".join(f"{name}={value}\x01" for name, value in sorted(login.extensions.items()))
    answer = yield f"n,,\x01auth=Bearer {login.password}\x01{more}\x01".encode()
    if answer:
        yield b"\x01"
        raise AuthenticationFailed(
            f"the broker refuses the token: {answer.decode(errors='replace')}"
        )


def _scram(login: Login, nonce: str) -> Exchange:
    """Log in with SCRAM (RFC 5802).

    As in Kafka's ``ScramSaslClient``, there is no channel binding and no normalisation.
    """
    name = _HASHES[login.mechanism]
    username = login.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={username},r={nonce}"
    answer = yield f"n,,{first}".encode()
    server_first = _fields(answer)
    try:
        full_nonce = server_first["r"]
        salt = base64.b64decode(server_first["s"], validate=True)
        iterations = int(server_first["i"])
    except (KeyError, ValueError) as error:
        raise _unfit(f"misses or spoils {error}") from None
    if not full_nonce.startswith(nonce) or len(full_nonce) == len(nonce):
        raise _unfit("does not continue our nonce")
    if iterations not in _ITERATIONS:
        raise _unfit(f"wants {iterations} iterations: {_ITERATIONS[0]} to {_ITERATIONS[-1]} are")
    salted = hashlib.pbkdf2_hmac(name, login.password.encode(), salt, iterations)
    without_proof = f"c=biws,r={full_nonce}"
    signed = f"{first},{answer.decode()},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
    final = _fields((yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if not hmac.compare_digest(final.get("v", ""), base64.b64encode(expected).decode()):
        raise _unfit("does not prove that the broker knows the password")


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise _unfit("is not text") from None
    return {key: value for key, _, value in (part.partition("=") for part in parts)}


def _unfit(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"the broker's SCRAM message {why}; is this the right cluster?")


_OLD = f"headrace needs brokers of Kafka {OLDEST_KAFKA} or newer"
_UNSUPPORTED_VERSION = ErrorCode.unsupported_version.value.to_bytes(2, "big")
_SHORTEST_SESSION_S = 0.02


async def begin_session(
    loop: EventLoop, connection: Connection, security: ClientSecurity, timeout_s: float
) -> None:
    """Check the broker's versions and log in.

    Raise ``UnsupportedBroker``, ``AccessDenied`` or ``ConnectionLost``.
    """
    connection.hold()
    await _check_versions(connection, timeout_s)
    if (login := await security.login(loop)) is not None:
        await _log_in_for_good(loop, connection, security, login, timeout_s)
    connection.go_on()


async def _check_versions(connection: Connection, timeout_s: float) -> None:
    try:
        response = await connection.send(
            _readable_of_old(ASK_VERSIONS),
            timeout_s=timeout_s,
            during_login=True,
        )
    except Garbled as error:
        raise UnsupportedBroker(
            f"{connection.server} does not answer as Kafka does: {error}"
        ) from None
    if response is None:
        raise UnsupportedBroker(f"{connection.server} is too old; {_OLD}")
    if response.error_code is not ErrorCode.none:
        raise UnsupportedBroker(
            f"{connection.server} does not report its versions: {response.error_code.name}"
        )
    connection.versions = {
        int(api.api_key): (int(api.min_version), int(api.max_version)) for api in response.api_keys
    }
    for key in REQUIRED:
        connection.version(key)


def _readable_of_old(asked: Call[ApiVersionsResponse]) -> Call[ApiVersionsResponse | None]:
    """Return a call whose result is None if the broker does not support the request's version.

    Such a broker responds in version 0 (KIP-511).
    """

    def encode(version: int) -> Encoded[ApiVersionsResponse | None]:
        encoded = asked.encode(version)

        def read(frame: Released, place: int) -> ApiVersionsResponse | None:
            if bytes(frame.view[place : place + 2]) == _UNSUPPORTED_VERSION:
                frame.release()
                return None
            return encoded.read(frame, place)

        return Encoded(version, encoded.body, read)

    return Call(asked.api_key, asked.newest, encode)


async def _log_in_for_good(
    loop: EventLoop,
    connection: Connection,
    security: ClientSecurity,
    login: Login,
    timeout_s: float,
) -> None:
    """Log in, and schedule the next login."""
    try:
        lifetime_s = await _log_in(connection, login, timeout_s)
    except AuthenticationFailed:
        security.refused(login)
        raise
    _renew_later(loop, connection, security, lifetime_s, timeout_s)


async def _log_in(connection: Connection, login: Login, timeout_s: float) -> float:
    """Log in, and return the lifetime of the session in seconds.

    Zero means that the session lasts as long as the connection.
    """
    server = connection.server
    if not connection.serves(SASL_HANDSHAKE):
        raise AuthenticationFailed(f"{server} takes no login: does its listener want one?")
    hello = SaslHandshakeRequest(mechanism=login.mechanism)
    offered = await connection.send(
        call(hello, SaslHandshakeResponse), timeout_s=timeout_s, during_login=True
    )
    if offered.error_code is ErrorCode.unsupported_sasl_mechanism:
        raise AuthenticationFailed(
            f"{server} does not take {login.mechanism}, but {', '.join(offered.mechanisms)}"
        )
    if offered.error_code is not ErrorCode.none:
        raise AuthenticationFailed(
            f"{server} takes no login ({offered.error_code.name}): does its listener want one?"
        )
    messages = exchange(login)
    message = next(messages)
    while True:
        answer = await connection.send(
            call(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse),
            timeout_s=timeout_s,
            during_login=True,
        )
        if answer.error_code is not ErrorCode.none:
            reason = answer.error_message or answer.error_code.name
            raise AuthenticationFailed(
                f"{server} refuses the login of {login.username!r}: {reason}"
            )
        try:
            message = messages.send(answer.auth_bytes)
        except StopIteration:
            return answer.session_lifetime.total_seconds()


def _renew_later(
    loop: EventLoop,
    connection: Connection,
    security: ClientSecurity,
    lifetime_s: float,
    timeout_s: float,
) -> None:
    """Schedule the next login, before the broker ends the session (KIP-368).

    It happens after 85 to 95 % of the session's lifetime, as in Kafka's client. The random share
    prevents connections from logging in at the same time.
    """
    if lifetime_s > 0:
        # If the token could not be replaced, the old one is sent again until it expires. The
        # minimum delay keeps these logins from becoming ever more frequent.
        delay_s = max(lifetime_s * random.uniform(0.85, 0.95), _SHORTEST_SESSION_S)

        def due() -> None:
            start(_renew(loop, connection, security, timeout_s))

        loop.call_later(delay_s, due)


async def _renew(
    loop: EventLoop, connection: Connection, security: ClientSecurity, timeout_s: float
) -> None:
    if connection.closed_by is not None:
        return
    try:
        login = await security.login(loop)  # not on hold: a token may take seconds
        await connection.hold()
        if login is not None:
            await _log_in_for_good(loop, connection, security, login, timeout_s)
        connection.go_on()
    except HeadraceError as error:
        connection.close(error)


_KEEPALIVE = {
    "TCP_KEEPIDLE": 10,  # seconds without data; networks drop connections after minutes
    "TCP_KEEPALIVE": 10,  # name of TCP_KEEPIDLE on macOS
    "TCP_KEEPINTVL": 3,
    "TCP_KEEPCNT": 3,  # a dropped connection is detected after 10 s + 3 * 3 s = 19 s
    "TCP_USER_TIMEOUT": 19_000,  # milliseconds that sent data may remain unacknowledged
}
"""TCP options. Options that the operating system does not support are skipped."""


def keep_alive(sock: socket.socket) -> None:
    """Enable TCP keepalive, so that the operating system detects dropped connections."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of a client's connections and fetches."""

    client_id: str = "headrace"
    connect_timeout_s: float = 10.0
    """Time-out of TCP, TLS and login together (``socket.connection.setup.timeout.ms``)."""
    request_timeout_s: float = 30.0
    """Time-out of a request (``request.timeout.ms``)."""
    probe_after_s: float = 5.0
    """Idle time in seconds after which the next request waits for a probe.

    A probe costs one round trip. Connections that are used more often are not delayed.
    """
    probe_timeout_s: float = 3.0
    """Time-out of a probe.

    Brokers respond at once, and a lost packet is resent after 0.2 to 1 s.
    """
    silent_after_s: float = 1.0
    """Time in seconds after which the next broker is tried.

    A broker that does not respond within that time may be frozen or unreachable. The client
    continues to wait for the first broker.
    """
    max_in_flight: int = 5
    """Maximum number of requests in flight per connection. Sequences are safe up to five."""
    send_buffer_bytes: int = 0
    """Size of the TCP send buffer. 0 leaves the size to the operating system."""
    receive_buffer_bytes: int = 0
    """Size of the TCP receive buffer. 0 leaves the size to the operating system."""
    address_family: int = socket.AF_UNSPEC
    fetch_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 4 << 20
    partition_bytes: int = 1 << 20

    @classmethod
    def of(cls, cluster: ClusterAccess) -> "ConnectionSettings":
        """Return the settings of a cluster's ``config`` (``api.client_settings.SUPPORTED``)."""
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
    """Address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Opener:
    """Opens connections to the brokers of one cluster."""

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
        """Open a connection. Raise ``Unreachable``, ``AccessDenied`` or ``UnsupportedBroker``."""
        try:
            return await self._open(server, closed)
        except (OSError, UnicodeError) as error:
            # A local error, such as too many open files, a full disk or an invalid name. Callers
            # retry after Unreachable. Any error of another type would end the loop and the driver.
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
                probe_after_s=self._settings.probe_after_s,
                probe_timeout_s=self._settings.probe_timeout_s,
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
        with suppress(ValueError):  # a host name raises ValueError and is looked up below
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
        keep_alive(sock)
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
        encrypted = Encrypted(sock, context, server.host)  # wrap_socket takes over the socket
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
        """Wait until the socket is ready. Raise ``GaveUp`` after the deadline."""
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
