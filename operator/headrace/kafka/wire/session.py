"""Beginning of a connection: the broker's versions, a login, and the login's renewal."""

import random

from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse

from headrace.errors import HeadraceError
from headrace.kafka.errors import AuthenticationFailed
from headrace.kafka.wire.connection import OLDEST_KAFKA, Connection
from headrace.kafka.wire.errors import Garbled, UnsupportedBroker
from headrace.kafka.wire.loop import EventLoop
from headrace.kafka.wire.protocol import (
    REQUIRED,
    SASL_HANDSHAKE,
    Call,
    Encoded,
    Released,
    call,
)
from headrace.kafka.wire.replies import start
from headrace.kafka.wire.sasl import exchange
from headrace.kafka.wire.security import ClientSecurity, Login

_OLD = f"headrace needs brokers of Kafka {OLDEST_KAFKA} or newer"
_UNSUPPORTED_VERSION = ErrorCode.unsupported_version.value.to_bytes(2, "big")
_SHORTEST_SESSION_S = 0.02


async def begin_session(
    loop: EventLoop, connection: Connection, security: ClientSecurity, timeout_s: float
) -> None:
    """Begin a session; raise ``UnsupportedBroker``, ``AccessDenied``, ``ConnectionLost``."""
    connection.hold()
    await _check_versions(connection, timeout_s)
    if (login := await security.login(loop)) is not None:
        await _log_in_for_good(loop, connection, security, login, timeout_s)
    connection.go_on()


async def _check_versions(connection: Connection, timeout_s: float) -> None:
    request = ApiVersionsRequest(client_software_name="headrace", client_software_version="0.1")
    try:
        response = await connection.send(
            _readable_of_old(call(request, ApiVersionsResponse)),
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
    """Return a call whose answer is ``None`` for a broker that does not know our version.

    Such a broker answers in version 0 (KIP-511).
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
    """Log in, and schedule the renewal."""
    try:
        lifetime_s = await _log_in(connection, login, timeout_s)
    except AuthenticationFailed:
        security.refused(login)
        raise
    _renew_later(loop, connection, security, lifetime_s, timeout_s)


async def _log_in(connection: Connection, login: Login, timeout_s: float) -> float:
    """Log in, and return for how long the login is valid in seconds; 0: while it is open."""
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
    """Log in again before the broker ends the session (KIP-368).

    This happens after 85 to 95 % of its duration, as in Kafka's client, so that not all connections
    do it at once.
    """
    if lifetime_s > 0:
        # A token that could not be replaced is sent again until it expires: not ever more often.
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
        login = await security.login(loop)  # first: a token endpoint may take seconds
        await connection.hold()
        if login is not None:
            await _log_in_for_good(loop, connection, security, login, timeout_s)
        connection.go_on()
    except HeadraceError as error:
        connection.close(error)
