"""Logins, their renewal, and encryption: which connections open, and which fail."""

import errno
import socket
import ssl
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
from kio.static.primitive import i64Timedelta
from support.fake_broker import ACCEPTED, END_TXN, FakeBroker, Serve, connect, end_txn
from support.patience import WITHIN_S
from support.security import Mounted, access
from support.token_endpoint import authentication, running_token_endpoint, secrets_of

from headrace.api import ClusterAccess
from headrace.errors import Unreachable
from headrace.kafka.errors import (
    AuthenticationFailed,
    SecretMissing,
    TlsFailed,
    TokenUnavailable,
)
from headrace.kafka.wire import handshake
from headrace.kafka.wire.errors import UnsupportedBroker
from headrace.kafka.wire.loop import EventLoop
from headrace.sandbox import Authority

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = {
    "type": "Plain",
    "username": "anna",
    "password": {"secretName": "user", "key": "password"},
}


@pytest.fixture
def secrets(tmp_path: Path) -> Mounted:
    mounted = Mounted(tmp_path / "secrets")
    mounted.write("user", {"password": b"first\n"})
    return mounted


def cluster(secrets: Mounted, **fields: Any) -> ClusterAccess:
    return access({"alias": "east", "bootstrapServers": "127.0.0.1:9092", **fields}, secrets.folder)


def answers(
    lifetime_s: float = 0.0,
    code: ErrorCode = ErrorCode.none,
    handshake: ErrorCode = ErrorCode.none,
) -> dict[int, Any]:
    said = None if code is ErrorCode.none else "Invalid username or password"
    return {
        HANDSHAKE: lambda _: SaslHandshakeResponse(
            error_code=handshake, mechanisms=("SCRAM-SHA-512",)
        ),
        AUTHENTICATE: lambda _: SaslAuthenticateResponse(
            error_code=code,
            error_message=said,
            auth_bytes=b"",
            session_lifetime=i64Timedelta.parse(timedelta(seconds=lifetime_s)),
        ),
        END_TXN: lambda _: ACCEPTED,
    }


def logins(broker: FakeBroker) -> list[bytes]:
    return [message.auth_bytes for message in broker.requests(AUTHENTICATE)]


def test_a_login_comes_before_all_requests(loop: EventLoop, serve: Serve, secrets: Mounted) -> None:
    broker = serve(answers())
    connection = connect(loop, broker, cluster(secrets, authentication=PLAIN))

    loop.wait(connection.send(end_txn()), WITHIN_S)

    assert [request.api_key for request in broker.seen] == [HANDSHAKE, AUTHENTICATE, END_TXN]
    assert logins(broker) == [b"\0anna\0first"]


def test_a_changed_password_is_used_at_the_next_login(
    loop: EventLoop, serve: Serve, secrets: Mounted
) -> None:
    broker, east = serve(answers()), cluster(secrets, authentication=PLAIN)
    connect(loop, broker, east)
    secrets.write("user", {"password": b"second"})

    connect(loop, broker, east)

    assert logins(broker) == [b"\0anna\0first", b"\0anna\0second"]


def test_a_token_is_sent_with_oauth_bearer(loop: EventLoop, serve: Serve, secrets: Mounted) -> None:
    broker = serve(answers(lifetime_s=0.05))
    with running_token_endpoint() as issuer:
        for name, content in secrets_of(issuer).items():
            secrets.write(name, content)
        east = cluster(secrets, authentication=authentication(issuer.url))

        connection = connect(loop, broker, east)
        while len(logins(broker)) < 3:  # its session is renewed with the same one
            assert loop.wait(connection.send(end_txn()), WITHIN_S) == ACCEPTED

        (token,) = issuer.issued
    assert set(logins(broker)) == {
        f"n,,\x01auth=Bearer {token}\x01logicalCluster=lkc 1\x01\x01".encode()
    }


def test_without_a_token_there_is_no_connection(
    loop: EventLoop, serve: Serve, secrets: Mounted
) -> None:
    broker = serve(answers())
    with running_token_endpoint() as issuer:
        for name, content in secrets_of(issuer).items():
            secrets.write(name, content)
        issuer.answer = 503, b""
        east = cluster(secrets, authentication=authentication(issuer.url))

        with pytest.raises(TokenUnavailable, match="gives no token"):
            connect(loop, broker, east)

    assert logins(broker) == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            answers(code=ErrorCode.sasl_authentication_failed),
            "refuses the login of 'anna': Invalid username or password",
        ),
        (
            answers(handshake=ErrorCode.unsupported_sasl_mechanism),
            "does not take PLAIN, but SCRAM-SHA-512",
        ),
        (answers(handshake=ErrorCode.illegal_sasl_state), "does its listener want one"),
    ],
)
def test_a_refused_login_says_why(
    loop: EventLoop, serve: Serve, secrets: Mounted, script: dict[int, Any], said: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=said):
        connect(loop, serve(script), cluster(secrets, authentication=PLAIN))


def test_a_missing_secret_is_named(loop: EventLoop, serve: Serve, secrets: Mounted) -> None:
    secrets.take("user")

    with pytest.raises(SecretMissing, match="Secret user"):
        connect(loop, serve(answers()), cluster(secrets, authentication=PLAIN))


def test_a_login_is_renewed_before_it_ends(loop: EventLoop, serve: Serve, secrets: Mounted) -> None:
    broker = serve(answers(lifetime_s=0.05))
    connection = connect(loop, broker, cluster(secrets, authentication=PLAIN))
    secrets.write("user", {"password": b"second"})

    while len(logins(broker)) < 3:
        assert loop.wait(connection.send(end_txn()), WITHIN_S) == ACCEPTED

    assert broker.connections == 1
    assert set(logins(broker)[1:]) == {b"\0anna\0second"}
    keys = [request.api_key for request in broker.seen]
    starts = [place for place, key in enumerate(keys) if key == HANDSHAKE]
    assert all(keys[place + 1] == AUTHENTICATE for place in starts if place + 1 < len(keys))


def test_a_refused_renewal_ends_the_connection(
    loop: EventLoop, serve: Serve, secrets: Mounted
) -> None:
    broker = serve(answers(lifetime_s=0.05))
    connection = connect(loop, broker, cluster(secrets, authentication=PLAIN))
    refused = answers(code=ErrorCode.sasl_authentication_failed)
    broker.script.update({AUTHENTICATE: refused[AUTHENTICATE]})

    while connection.closed_by is None:
        loop.run_once(WITHIN_S)

    assert isinstance(connection.closed_by, AuthenticationFailed)
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        connection.send(end_txn()).result()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("east")


def listening(authority: Authority, folder: Path, address: str = "127.0.0.1") -> ssl.SSLContext:
    """Return the TLS context of a broker with a certificate for that address."""
    certificate, key = authority.issue("broker", address=address)
    (folder / "broker.crt").write_bytes(certificate)
    (folder / "broker.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "broker.crt", folder / "broker.key")
    return context


TLS = {"trustedCertificates": [{"secretName": "ca", "key": "ca.crt"}]}


def test_requests_travel_encrypted(
    loop: EventLoop, serve: Serve, secrets: Mounted, authority: Authority, tmp_path: Path
) -> None:
    secrets.write("ca", {"ca.crt": authority.certificate})
    broker = serve({END_TXN: lambda _: ACCEPTED}, context=listening(authority, tmp_path))
    connection = connect(loop, broker, cluster(secrets, tls=TLS))

    replies = [connection.send(end_txn("x" * 30_000)) for _ in range(30)]

    assert loop.wait(replies[-1], WITHIN_S) == ACCEPTED
    assert {len(message.transactional_id) for message in broker.requests(END_TXN)} == {30_000}


def test_a_certificate_for_another_host_is_refused(
    loop: EventLoop, serve: Serve, secrets: Mounted, authority: Authority, tmp_path: Path
) -> None:
    secrets.write("ca", {"ca.crt": authority.certificate})
    broker = serve({}, context=listening(authority, tmp_path, address="127.0.0.2"))

    with pytest.raises(TlsFailed, match=r"certificate of 127\.0\.0\.1:\d+ is refused: IP address"):
        connect(loop, broker, cluster(secrets, tls=TLS))


def test_an_unknown_authority_is_refused_until_its_file_is_there(
    loop: EventLoop, serve: Serve, secrets: Mounted, authority: Authority, tmp_path: Path
) -> None:
    secrets.write("ca", {"ca.crt": Authority("other").certificate})
    broker = serve({END_TXN: lambda _: ACCEPTED}, context=listening(authority, tmp_path))
    east = cluster(secrets, tls=TLS)
    with pytest.raises(TlsFailed, match="is refused: "):
        connect(loop, broker, east)

    secrets.write("ca", {"ca.crt": authority.certificate})

    assert loop.wait(connect(loop, broker, east).send(end_txn()), WITHIN_S) == ACCEPTED


def test_a_listener_without_tls_is_named(
    loop: EventLoop, serve: Serve, secrets: Mounted, authority: Authority
) -> None:
    secrets.write("ca", {"ca.crt": authority.certificate})

    with pytest.raises(TlsFailed, match="no encrypted connection to"):
        connect(loop, serve({}), cluster(secrets, tls=TLS), connect_timeout_s=1.0)


def test_a_listener_with_tls_is_not_taken_for_kafka(
    loop: EventLoop, serve: Serve, secrets: Mounted, authority: Authority, tmp_path: Path
) -> None:
    broker = serve({}, context=listening(authority, tmp_path))

    with pytest.raises((Unreachable, UnsupportedBroker), match=str(broker.port)):
        connect(loop, broker, cluster(secrets), connect_timeout_s=1.0)


def test_files_that_are_no_certificates_are_named(
    loop: EventLoop, serve: Serve, secrets: Mounted
) -> None:
    secrets.write("ca", {"ca.crt": b"not PEM"})

    with pytest.raises(TlsFailed, match=r"ca\.crt of Secret ca"):
        connect(loop, serve({}), cluster(secrets, tls=TLS))


def test_what_this_machine_refuses_is_an_error_of_ours(
    loop: EventLoop, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error would end the loop's thread, and the driver."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    broker = serve({})
    names = {**vars(socket), "socket": refuse}
    monkeypatch.setattr(handshake, "socket", SimpleNamespace(**names))
    with pytest.raises(Unreachable, match="Too many open files"):
        connect(loop, broker)
