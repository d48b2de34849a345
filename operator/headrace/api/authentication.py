"""How a client authenticates at a cluster's brokers (SASL)."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace.api.extensions import Rule
from headrace.api.model import Breach, Matching, Model, Text
from headrace.api.secret_key import (
    PasswordRef,
    SecretKeyRef,
    SecretUse,
    TrustedCertificate,
    UsernameRef,
)

_HOST = r"([\w.-]+|\[[0-9a-fA-F:.]+\])"
Url = Annotated[
    str,
    Field(max_length=1024),
    Matching(
        rf"https?://{_HOST}(:\d{{1,5}})?(/[\w.~!$&*+,;=:@%/?()-]*)?",
        "must be a URL that begins with https:// or http://",
    ),
]
_EXTENSION_RULE = "must have names of letters (a-z, A-Z), other than auth"
_VALUE = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Matching(r"[ -~]+", "must be printable ASCII"),
]


class AuthenticationType(StrEnum):
    """SASL mechanism."""

    PLAIN = "Plain"
    SCRAM_SHA_256 = "ScramSha256"
    SCRAM_SHA_512 = "ScramSha512"
    OAUTH_BEARER = "OAuthBearer"


class OAuth(Model):
    """Where tokens come from: OAuth 2.0's grant of client credentials (RFC 6749, section 4.4)."""

    token_endpoint: Url
    """URL of the token endpoint; with http:// the client's secret is sent in plain text."""
    client_id: Annotated[Text, Field(min_length=1)]
    """The client's id there."""
    client_secret: SecretKeyRef
    """Where the client's secret is."""
    scope: _VALUE | None = None
    """Scope that is asked for; several are separated by spaces."""
    extensions: Annotated[dict[str, _VALUE], Field(max_length=16)] = Field(default_factory=dict)
    """SASL extensions that brokers are sent with the token (KIP-342), by name."""
    trusted_certificates: Annotated[tuple[TrustedCertificate, ...], Field(max_length=32)] = ()
    """Certificate authorities to trust at the token endpoint, PEM; none: the system's."""

    rules = (
        # Keys have no bound that CEL knows of: with a pattern of them it would exceed its budget.
        Rule(
            "!has(self.extensions) || !('auth' in self.extensions)",
            _EXTENSION_RULE,
            at="extensions",
        ),
    )

    def uses(self) -> Iterator[SecretUse]:
        """Return every key of a Secret or ConfigMap that is named here."""
        field, secret = "authentication.oauth", self.client_secret
        yield SecretUse(f"{field}.clientSecret", secret.secret_name, secret.key)
        for place, trusted in enumerate(self.trusted_certificates):
            yield trusted.use(f"{field}.trustedCertificates[{place}]")

    def _breaches(self) -> Iterator[Breach]:
        if any(n == "auth" or not n.isascii() or not n.isalpha() for n in self.extensions):
            yield Breach(("extensions",), _EXTENSION_RULE)


_FOR_A_PASSWORD = "is required with type: Plain, ScramSha256 or ScramSha512"
_OF_A_PASSWORD = "is not used with type: OAuthBearer, which takes oauth"
_ONE_USERNAME = "must not be set beside username"
_FOR_TOKENS = "is required with type: OAuthBearer"
_OF_TOKENS = "is used with type: OAuthBearer only"


class Authentication(Model):
    """How a client authenticates (SASL)."""

    type: AuthenticationType
    """Mechanism."""
    username: Annotated[Text, Field(min_length=1)] | None = None
    """User; Plain, ScramSha256 and ScramSha512 require it or usernameFrom."""
    username_from: UsernameRef | None = None
    """Where the user's name is, instead of username."""
    password: PasswordRef | None = None
    """Where the password is; required by Plain, ScramSha256 and ScramSha512."""
    oauth: OAuth | None = None
    """Where tokens come from; required by OAuthBearer."""

    rules = (
        Rule(
            "self.type == 'OAuthBearer' || has(self.username) || has(self.usernameFrom)",
            _FOR_A_PASSWORD,
            at="username",
            reason="FieldValueRequired",
        ),
        Rule(
            "self.type == 'OAuthBearer' || has(self.password)",
            _FOR_A_PASSWORD,
            at="password",
            reason="FieldValueRequired",
        ),
        Rule(
            "!has(self.username) || !has(self.usernameFrom)",
            _ONE_USERNAME,
            at="usernameFrom",
            reason="FieldValueForbidden",
        ),
        *(
            Rule(
                f"self.type != 'OAuthBearer' || !has(self.{field})",
                _OF_A_PASSWORD,
                at=field,
                reason="FieldValueForbidden",
            )
            for field in ("username", "usernameFrom", "password")
        ),
        Rule(
            "self.type != 'OAuthBearer' || has(self.oauth)",
            _FOR_TOKENS,
            at="oauth",
            reason="FieldValueRequired",
        ),
        Rule(
            "self.type == 'OAuthBearer' || !has(self.oauth)",
            _OF_TOKENS,
            at="oauth",
            reason="FieldValueForbidden",
        ),
    )

    def uses(self) -> Iterator[SecretUse]:
        """Return every key of a Secret or ConfigMap that is named here."""
        for name, found in (("usernameFrom", self.username_from), ("password", self.password)):
            if found is not None:
                yield SecretUse(f"authentication.{name}", found.secret_name, found.key)
        if self.oauth is not None:
            yield from self.oauth.uses()

    def _breaches(self) -> Iterator[Breach]:
        by_token = self.type is AuthenticationType.OAUTH_BEARER
        named = self.username or self.username_from
        for field, value in (("username", named), ("password", self.password)):
            if value is None and not by_token:
                yield Breach((field,), _FOR_A_PASSWORD)
        for field, found in (
            ("username", self.username),
            ("usernameFrom", self.username_from),
            ("password", self.password),
        ):
            if found is not None and by_token:
                yield Breach((field,), _OF_A_PASSWORD)
        if self.username is not None and self.username_from is not None:
            yield Breach(("usernameFrom",), _ONE_USERNAME)
        if (self.oauth is not None) is not by_token:
            yield Breach(("oauth",), _FOR_TOKENS if by_token else _OF_TOKENS)
