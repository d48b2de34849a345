"""SASL's side of the client: what is sent, and whether what the broker answers is right."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

from headrace.kafka.errors import AuthenticationFailed
from headrace.kafka.wire.security import Login

Exchange = Generator[bytes, bytes, None]
"""Yields what to send, is sent what was answered; ends when the login is complete."""

_ITERATIONS = range(4096, 1_000_001)
"""Kafka's least; and what takes a second, so that no broker makes us compute for hours."""
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def exchange(login: Login, nonce: str | None = None) -> Exchange:
    """Return the exchange of a mechanism; raise ``AuthenticationFailed``.

    ``nonce`` is for tests.
    """
    if login.mechanism in _HASHES:
        return _scram(login, nonce or secrets.token_urlsafe(24))
    if login.mechanism == "PLAIN":
        return _plain(login)
    if login.mechanism == "OAUTHBEARER":
        return _oauth_bearer(login)
    raise AuthenticationFailed(f"SASL mechanism {login.mechanism} is not one of this client's")


def _plain(login: Login) -> Exchange:
    """RFC 4616."""
    yield b"\0" + login.username.encode() + b"\0" + login.password.encode()


def _oauth_bearer(login: Login) -> Exchange:
    """RFC 7628; a broker that refuses the token says why, and waits for one byte."""
    more = "".join(f"{name}={value}\x01" for name, value in sorted(login.extensions.items()))
    answer = yield f"n,,\x01auth=Bearer {login.password}\x01{more}\x01".encode()
    if answer:
        yield b"\x01"
        raise AuthenticationFailed(
            f"the broker refuses the token: {answer.decode(errors='replace')}"
        )


def _scram(login: Login, nonce: str) -> Exchange:
    """RFC 5802, as Kafka's ``ScramSaslClient``: no channel binding, no normalisation."""
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
