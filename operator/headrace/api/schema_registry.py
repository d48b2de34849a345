"""Schema registry of a target, and how to reach it."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace.api.cluster import (
    ONE_USERNAME,
    PasswordRef,
    SecretKeyRef,
    SecretUse,
    TrustedCertificate,
    Url,
    UsernameRef,
    password_rules,
)
from headrace.api.model import Model, Once, Regex, Rule, RuleViolation, Text


class RegistryAuthenticationType(StrEnum):
    """Authentication scheme of HTTP requests."""

    BASIC = "Basic"
    BEARER = "Bearer"


_FOR_BASIC = "is required with type: Basic"
_OF_BASIC = "is used with type: Basic only"
_FOR_BEARER = "is required with type: Bearer"
_OF_BEARER = "is used with type: Bearer only"


class RegistryAuthentication(Model):
    """Authentication of headrace to the registry."""

    type: RegistryAuthenticationType
    """Authentication scheme: user name and password (Basic), or a token (Bearer)."""
    username: Annotated[Text, Field(min_length=1)] | None = None
    """User name. Basic requires this field or usernameFrom."""
    username_from: UsernameRef | None = None
    """Reference to the user name, instead of username."""
    password: PasswordRef | None = None
    """Reference to the password. Required by Basic."""
    token: SecretKeyRef | None = None
    """Reference to the token. Required by Bearer."""

    rules = (
        *password_rules("self.type != 'Basic'", "self.type == 'Basic'", _FOR_BASIC, _OF_BASIC),
        Rule(
            "self.type != 'Bearer' || has(self.token)",
            _FOR_BEARER,
            at="token",
            reason="FieldValueRequired",
        ),
        Rule(
            "self.type == 'Bearer' || !has(self.token)",
            _OF_BEARER,
            at="token",
            reason="FieldValueForbidden",
        ),
    )

    def uses(self) -> Iterator[SecretUse]:
        """Yield every key of a Secret to which a field refers."""
        for name, found in (
            ("usernameFrom", self.username_from),
            ("password", self.password),
            ("token", self.token),
        ):
            if found is not None:
                yield SecretUse(f"authentication.{name}", found.secret_name, found.key)

    def _breaches(self) -> Iterator[RuleViolation]:
        is_basic = self.type is RegistryAuthenticationType.BASIC
        if is_basic and not (self.username or self.username_from):
            yield RuleViolation(("username",), _FOR_BASIC)
        if is_basic and self.password is None:
            yield RuleViolation(("password",), _FOR_BASIC)
        for field, found in (
            ("username", self.username),
            ("usernameFrom", self.username_from),
            ("password", self.password),
        ):
            if found is not None and not is_basic:
                yield RuleViolation((field,), _OF_BASIC)
        if self.username is not None and self.username_from is not None:
            yield RuleViolation(("usernameFrom",), ONE_USERNAME)
        if (self.token is None) is not is_basic:
            yield RuleViolation(("token",), _OF_BEARER if is_basic else _FOR_BEARER)


class RecordPart(StrEnum):
    """Part of a record that may be in Confluent's wire format."""

    KEY = "Key"
    VALUE = "Value"


class AuditSchemas(Model):
    """Check that the target's schema registry knows the schema ids of the target's records."""

    url: Url
    """URL of the target's schema registry. With http:// the password or token is sent in plain
    text."""
    trusted_certificates: Annotated[tuple[TrustedCertificate, ...], Field(max_length=32)] = ()
    """Certificate authorities to trust at the registry (PEM). Default: the system's authorities."""
    authentication: RegistryAuthentication | None = None
    """Authentication at the registry. If absent, headrace does not authenticate."""
    topics: Annotated[tuple[Regex, ...], Field(min_length=1, max_length=1000)] | None = None
    """Regular expressions. The records of a topic are checked if one of them matches its whole name
    on the source. Default: all topics of the audit."""
    parts: Annotated[tuple[RecordPart, ...], Field(min_length=1, max_length=2), Once()] = (
        RecordPart.VALUE,
    )
    """Parts of the records to check. A part is checked if it begins with the magic byte 0 and a
    schema id of 4 bytes. A key that is a number often begins with the same byte."""

    def uses(self) -> Iterator[SecretUse]:
        """Yield every key of a Secret or ConfigMap to which a field refers."""
        for place, trusted in enumerate(self.trusted_certificates):
            yield trusted.use(f"trustedCertificates[{place}]")
        if self.authentication is not None:
            yield from self.authentication.uses()
