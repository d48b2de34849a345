"""SASL mechanisms against the examples of their RFCs, and against brokers that cheat."""

import base64

import pytest

from headrace.kafka.errors import AuthenticationFailed
from headrace.kafka.wire.handshake import exchange
from headrace.kafka.wire.transport import Login

PENCIL = Login("SCRAM-SHA-256", "user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)


def test_scram_speaks_as_rfc_7677_shows() -> None:
    messages = exchange(PENCIL, NONCE)

    assert next(messages) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert messages.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        messages.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_name_is_escaped() -> None:
    first = next(exchange(Login("SCRAM-SHA-512", "a=b,c", "x"), "nonce"))

    assert first == b"n,,n=a=3Db=2Cc,r=nonce"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"r=other,s=QQ==,i=4096", "does not continue our nonce"),
        (b"r=" + NONCE.encode() + b",s=QQ==,i=4096", "does not continue our nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "wants 4095 iterations"),
        (SERVER_FIRST.replace(b"4096", b"2000000000"), "wants 2000000000 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=many"), "misses or spoils"),
        (b"r=" + NONCE.encode() + b"x,i=4096", "misses or spoils 's'"),
        (b"", "misses or spoils 'r'"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_first_answer_that_cheats_is_refused(answer: bytes, said: str) -> None:
    messages = exchange(PENCIL, NONCE)
    next(messages)

    with pytest.raises(AuthenticationFailed, match=said):
        messages.send(answer)


@pytest.mark.parametrize("answer", [b"v=" + base64.b64encode(b"x" * 32), b"e=other-error", b""])
def test_a_broker_that_does_not_know_the_password_is_refused(answer: bytes) -> None:
    messages = exchange(PENCIL, NONCE)
    next(messages)
    messages.send(SERVER_FIRST)

    with pytest.raises(AuthenticationFailed, match="does not prove"):
        messages.send(answer)


def test_plain_sends_name_and_password() -> None:
    messages = exchange(Login("PLAIN", "üser", "p,w"))

    assert next(messages) == b"\0\xc3\xbcser\0p,w"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_oauth_bearer_sends_the_token() -> None:
    messages = exchange(Login("OAUTHBEARER", password="ey.J.x"))

    assert next(messages) == b"n,,\x01auth=Bearer ey.J.x\x01\x01"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_oauth_bearer_says_why_a_token_is_refused() -> None:
    messages = exchange(Login("OAUTHBEARER", password="old"))
    next(messages)

    assert messages.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        messages.send(b"")


def test_a_login_is_never_shown() -> None:
    assert "pencil" not in repr(PENCIL)
