"""Tokens of OAUTHBEARER: requests to the endpoint, and the errors if it returns none."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.security import Mounted, access
from support.token_endpoint import (
    CLIENT,
    SECRET,
    TokenEndpoint,
    authentication,
    running_token_endpoint,
    secrets_of,
)

from headrace.api import ClusterAccess
from headrace.kafka import SecretMissing, client_config, principal_of
from headrace.kafka.errors import TokenUnavailable
from headrace.kafka.security import Tokens, token_trouble, tokens_of
from headrace.sandbox import Authority

FIELD = "spec.source.authentication.oauth"


class Clock:
    """Clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_s = time.monotonic()
        self.unix_s = time.time()
        """Unix time, which an administrator may set."""

    def time(self) -> float:
        return self.unix_s

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def issuer() -> Iterator[TokenEndpoint]:
    with running_token_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def secrets(issuer: TokenEndpoint, tmp_path: Path) -> Mounted:
    mounted = Mounted(tmp_path / "secrets")
    for name, content in secrets_of(issuer).items():
        mounted.write(name, content)
    return mounted


def cluster(issuer: TokenEndpoint, secrets: Mounted, **oauth: Any) -> ClusterAccess:
    login = authentication(issuer.url, **oauth)
    fields = {"alias": "east", "bootstrapServers": "e:1", "authentication": login}
    return access(fields, secrets.folder)


@pytest.fixture
def make(issuer: TokenEndpoint, secrets: Mounted) -> Callable[..., Tokens]:
    def made(**oauth: Any) -> Tokens:
        tokens = tokens_of(cluster(issuer, secrets, **oauth))
        assert tokens is not None
        return tokens

    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clocked(issuer: TokenEndpoint, secrets: Mounted, clock: Clock) -> Tokens:
    """Return tokens that use ``clock``."""
    east = cluster(issuer, secrets)
    assert east.spec.authentication is not None
    assert east.spec.authentication.oauth is not None
    return Tokens(east, east.spec.authentication.oauth, clock)


def test_one_token_is_asked_for_and_kept(
    issuer: TokenEndpoint, make: Callable[..., Tokens]
) -> None:
    token = make().get()
    assert make().get() is token
    assert [token.value] == issuer.issued
    assert token.subject == CLIENT
    (form,) = issuer.asked
    assert form == {"grant_type": ["client_credentials"], "scope": ["replicate kafka"]}
    assert make(scope="other").get() is not token


def test_a_token_is_replaced_before_it_expires(
    issuer: TokenEndpoint, clocked: Tokens, clock: Clock
) -> None:
    tokens = clocked
    first = tokens.get()
    clock.now_s = first.received_s + 0.74 * issuer.lifetime_s
    assert tokens.get() is first
    clock.now_s = first.received_s + 0.76 * issuer.lifetime_s
    issuer.stop()
    assert (tokens.get(), tokens.cached_token()) == (first, None)  # valid for some time
    clock.now_s = first.expires_s + 10
    with pytest.raises(TokenUnavailable):
        tokens.get()
    issuer.start()
    with pytest.raises(TokenUnavailable):
        tokens.get()  # it was requested just now
    clock.now_s += 10
    assert tokens.get() is not first
    assert tokens.trouble is None


def test_a_token_that_brokers_refuse_is_replaced_but_not_all_the_time(
    clocked: Tokens, clock: Clock
) -> None:
    tokens = clocked
    first = tokens.get()
    tokens.discard(first.value)
    assert tokens.get() is first
    clock.now_s = first.received_s + 10
    tokens.discard("another")
    assert tokens.get() is first
    tokens.discard(first.value)
    assert tokens.get() is not first


def test_a_token_is_replaced_in_time_though_the_clock_is_set_back(
    clocked: Tokens, clock: Clock
) -> None:
    first = clocked.get()
    clock.unix_s -= 86_400
    clock.now_s = first.received_s + 10
    assert clocked.get() is first
    clocked.discard(first.value)
    second = clocked.get()
    assert second is not first, "brokers refused it"
    clock.now_s = second.expires_s + 1
    assert clocked.get() is not second


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((200, b"<html>welcome</html>"), "has no token in it (access_token); is {field}.tokenEnd"),
        ((200, b"[]"), "has no token in it"),
        ((200, b'{"access_token": "a b", "expires_in": 9}'), "has no token in it"),
        ((200, b'{"access_token": "opaque"}'), "does not say when its token expires"),
        ((200, b'{"access_token": "a", "expires_in": "soon"}'), "does not say when its token"),
        ((200, b'{"access_token": "a", "expires_in": 0}'), "has a token that has expired; compare"),
        ((503, b"later"), "gives no token (503); check {field}, and the log of that server"),
        ((302, b""), "gives no token (302)"),
        ((400, b'{"error": "invalid_scope"}'), "refuses the scope (400 invalid_scope); correct "),
        (
            (400, b'{"error": "unauthorized_client", "error_description": "Not you. Trace: 1"}'),
            "refuses the client headrace client (400 unauthorized_client: Not you); check "
            "{field}.clientId, and the key secret of Secret issuer-client",
        ),
        (
            (401, f'{{"error_description": "no client has {"other"}"}}'.encode()),
            "(401 no client has ***)",
        ),
    ],
)
def test_what_an_answer_without_a_token_is_called(
    answer: tuple[int, bytes],
    sentence: str,
    issuer: TokenEndpoint,
    secrets: Mounted,
    make: Callable[..., Tokens],
) -> None:
    secrets.write("issuer-client", {"secret": b"other"})
    issuer.answer = answer
    with pytest.raises(TokenUnavailable) as refused:
        make().get()
    assert issuer.url in str(refused.value)
    assert sentence.format(field=FIELD) in str(refused.value)


def test_numbers_may_be_text(issuer: TokenEndpoint, make: Callable[..., Tokens]) -> None:
    issuer.answer = 200, b'{"access_token": "opaque", "expires_in": "60"}'
    token = make().get()
    assert (token.value, token.subject) == ("opaque", "")
    assert token.expires_s - token.received_s == pytest.approx(60)


def test_the_claim_counts_where_the_answer_does_not_say_when_it_expires(
    issuer: TokenEndpoint, make: Callable[..., Tokens]
) -> None:
    issuer.answer = 200, f'{{"access_token": "{issuer.issue()}"}}'.encode()
    token = make().get()
    assert 3590 < token.expires_s - token.received_s <= 3600


def test_what_is_said_of_an_endpoint_that_cannot_be_reached(
    issuer: TokenEndpoint, secrets: Mounted, make: Callable[..., Tokens]
) -> None:
    secrets.write("other-ca", {"ca.crt": Authority("other").certificate, "junk": b"junk"})

    def sentence(**oauth: Any) -> str:
        with pytest.raises(TokenUnavailable) as refused:
            make(**oauth).get()
        return str(refused.value)

    other = [{"secretName": "other-ca", "key": "ca.crt"}]
    assert sentence(trustedCertificates=other).startswith(
        f"the certificate of the token endpoint {issuer.url} is refused: unable to get local"
    )
    assert (
        f"{FIELD}.trustedCertificates (ca.crt of Secret other-ca) must hold the authority"
    ) in sentence(trustedCertificates=other)
    junk = [{"secretName": "other-ca", "key": "junk"}]
    assert sentence(trustedCertificates=junk).startswith("could not use junk of Secret other-ca: ")
    plain = issuer.url.replace("https", "http")
    assert "does not answer as a web server does" in sentence(tokenEndpoint=plain) or (
        "cannot be reached" in sentence(tokenEndpoint=plain)
    )
    tls = issuer.keys_url.replace("http", "https")
    assert "does not speak TLS as it should" in sentence(tokenEndpoint=tls)
    nowhere = "https://no-such-host.invalid/token"
    assert f"{nowhere} has a name that does not resolve" in sentence(tokenEndpoint=nowhere)
    issuer.stop()
    assert sentence() == (
        f"the token endpoint {issuer.url} refuses connections (nothing listens there); check "
        f"{FIELD}.tokenEndpoint, and that it runs"
    )


def test_no_secret_and_no_token_is_shown(
    issuer: TokenEndpoint, secrets: Mounted, make: Callable[..., Tokens]
) -> None:
    tokens = make()
    token = tokens.get()
    assert token.value not in repr(token)
    assert SECRET not in repr(tokens)
    secrets.take("issuer-client")
    with pytest.raises(SecretMissing, match=r"Secret issuer-client, which spec\.source\.auth"):
        make(scope="another").get()


def test_what_clients_are_given(issuer: TokenEndpoint, secrets: Mounted) -> None:
    east = cluster(issuer, secrets)
    config = client_config(east)
    assert (config["security.protocol"], config["sasl.mechanism"]) == (
        "SASL_PLAINTEXT",
        "OAUTHBEARER",
    )
    value, _, subject, extensions = config["oauth_cb"]("")
    assert ([value], subject, extensions) == (issuer.issued, CLIENT, {"logicalCluster": "lkc 1"})
    assert principal_of(east) == f"User:{CLIENT}"
    assert token_trouble(east) is None


def test_a_client_is_not_made_without_a_token(issuer: TokenEndpoint, secrets: Mounted) -> None:
    issuer.stop()
    east = cluster(issuer, secrets)
    with pytest.raises(TokenUnavailable):
        client_config(east)
    assert "refuses connections" in str(token_trouble(east))
    assert principal_of(east) == "User:<claim sub of the token>"
