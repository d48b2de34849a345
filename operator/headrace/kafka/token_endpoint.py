"""Requests OAuth 2.0 tokens with the client credentials grant (RFC 6749, section 4.4)."""

import base64
import http.client
import json
import re
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

from headrace.api import OAuth
from headrace.kafka.errors import TokenUnavailable
from headrace.kafka.web import exchange, failure_reason, tls_context
from headrace.timing import Clock

_RENEWED_AT = 0.75
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""Valid bearer tokens (RFC 6750, section 2.1)."""
_REFUSES_CLIENT = {"invalid_client", "unauthorized_client", "access_denied"}


@dataclass(frozen=True, repr=False)
class Token:
    """An access token. It must not be logged or stored."""

    value: str
    received_s: float
    expires_s: float
    """Monotonic time at which the token expires. ``received_s`` is monotonic as well, because this
    machine's clock may be set."""
    subject: str = ""
    """Claim ``sub``, which brokers use as the user name. Empty if it cannot be read."""

    @property
    def renewed_s(self) -> float:
        """Monotonic time at which the next token is requested."""
        return self.received_s + _RENEWED_AT * (self.expires_s - self.received_s)


def request_token(
    oauth: OAuth, field: str, secret: str, trusted: str, *, clock: Clock = time
) -> Token:
    """Request a new token and wait for it.

    Redirects are not followed and no proxy is used: the secret is only sent to the named address.

    Args:
        oauth: Endpoint and client id.
        field: Field of the manifest that contains ``oauth``, for messages.
        secret: Client secret.
        trusted: Certificate authorities, PEM.
        clock: Source of the token's times.

    Raises:
        TokenUnavailable: The endpoint did not return a token.
    """
    try:
        status, body = _post(oauth, field, secret, trusted)
    except ssl.SSLCertVerificationError as error:
        named = ", ".join(map(str, oauth.trusted_certificates))
        named = named or "not set: the system certificates apply"
        raise TokenUnavailable(
            f"the certificate of the token endpoint {oauth.token_endpoint} is refused: "
            f"{error.verify_message.rstrip('.')}; {field}.trustedCertificates "
            f"({named}) must hold the authority that signed it"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TokenUnavailable(
            f"the token endpoint {oauth.token_endpoint} {failure_reason(error)}; check "
            f"{field}.tokenEndpoint, and that it runs"
        ) from None
    if status != http.HTTPStatus.OK:
        raise TokenUnavailable(_refusal(oauth, field, status, body, secret))
    return _read(oauth, field, body, clock)


def _post(oauth: OAuth, field: str, secret: str, trusted: str) -> tuple[int, bytes]:
    is_encrypted = oauth.token_endpoint.startswith("https:")
    context = _context(oauth, field, trusted) if is_encrypted else None
    asked = {"grant_type": "client_credentials"}
    if oauth.scope is not None:
        asked["scope"] = oauth.scope
    # Both parts are encoded before they are joined (RFC 6749, section 2.3.1).
    login = f"{quote_plus(oauth.client_id)}:{quote_plus(secret)}"
    headers = {
        "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    return exchange("POST", oauth.token_endpoint, headers, context, urlencode(asked))


def _context(oauth: OAuth, field: str, trusted: str) -> ssl.SSLContext:
    try:
        return tls_context(trusted)
    except (ssl.SSLError, ValueError) as error:
        files = ", ".join(map(str, oauth.trusted_certificates))
        raise TokenUnavailable(
            f"could not use {files}: {error}; {field}.trustedCertificates wants PEM files"
        ) from None


def _refusal(oauth: OAuth, field: str, status: int, body: bytes, secret: str) -> str:
    answer = _object(body)
    code, why = (
        " ".join(str(answer.get(name, "")).replace(secret, "***").split())
        for name in ("error", "error_description")
    )
    # Only the first sentence is used. The rest differs each time, and an unchanged error is logged
    # only once.
    words = ": ".join(filter(None, [code[:60], why.partition(". ")[0][:200]]))
    answered = f"{status} {words}".strip()
    where = f"the token endpoint {oauth.token_endpoint}"
    if status == http.HTTPStatus.UNAUTHORIZED or code in _REFUSES_CLIENT:
        return (
            f"{where} refuses the client {oauth.client_id} ({answered}); check {field}.clientId, "
            f"and the key {oauth.client_secret.key} of Secret {oauth.client_secret.secret_name}"
        )
    if code == "invalid_scope":
        return f"{where} refuses the scope ({answered}); correct {field}.scope"
    return f"{where} gives no token ({answered}); check {field}, and the log of that server"


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _read(oauth: OAuth, field: str, body: bytes, clock: Clock) -> Token:
    answer, now_s = _object(body), clock.monotonic()
    value = answer.get("access_token")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise _useless(oauth, field, "has no token in it (access_token)")
    claims = _claims(value)
    # ``expires_in`` is relative, so it is correct even if this machine's clock is wrong.
    lifetime = _number(answer.get("expires_in"))
    if lifetime is None and (expires := _number(claims.get("exp"))) is not None:
        lifetime = expires - clock.time()
    if lifetime is None:
        raise _useless(oauth, field, "does not say when its token expires (expires_in)")
    if lifetime <= 0:
        raise _useless(oauth, field, "has a token that has expired; compare the clocks")
    subject = claims.get("sub")
    return Token(value, now_s, now_s + lifetime, subject if isinstance(subject, str) else "")


def _useless(oauth: OAuth, field: str, what: str) -> TokenUnavailable:
    return TokenUnavailable(
        f"the answer of the token endpoint {oauth.token_endpoint} {what}; is "
        f"{field}.tokenEndpoint the URL that gives tokens to clients?"
    )


def _number(value: object) -> float | None:
    """Return a number, which some servers send as text, or None."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT without verifying it. Empty for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
