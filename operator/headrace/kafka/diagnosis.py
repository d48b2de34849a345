"""Why a cluster cannot be reached, found by connecting to its listeners.

librdkafka reports a wrong host name and an unknown authority with the same words, and nothing of
a listener with TLS when the client has none: it only sees connections that end.
"""

import re
from typing import NamedTuple

from confluent_kafka import KafkaError

from headrace.api import ClusterAccess
from headrace.errors import HeadraceError, Unreachable
from headrace.kafka.errors import (
    AuthenticationFailed,
    TlsFailed,
    TokenUnavailable,
    words,
)
from headrace.kafka.listeners import (
    Server,
    bootstrap_servers,
    first_listening,
    shown,
    silent_servers,
    why_unreachable,
)
from headrace.kafka.tls_diagnosis import tls_trouble
from headrace.kafka.tokens import token_trouble

_FROZEN = (
    "accepts connections and does not answer: it is frozen or overloaded, or the network drops "
    "what it sends; check that broker"
)


def diagnose(
    cluster: ClusterAccess, tried: str, failure: HeadraceError, client_error: KafkaError | None
) -> HeadraceError:
    """A better error for ``failure``, where there is one.

    ``client_error`` is what the client reported last of its connections. May take some seconds.
    """
    if not isinstance(failure, Unreachable | AuthenticationFailed | TlsFailed):
        return failure
    if why_no_login := _login_trouble(cluster, tried, client_error):
        return why_no_login
    if (server := first_listening(cluster)) is None:
        return Unreachable(f"could not {tried}: {_why_none_listens(cluster)}")
    if why := tls_trouble(cluster, server, client_error):
        return TlsFailed(f"could not {tried}: {why}")
    if isinstance(failure, Unreachable) and (why := _broker_trouble(cluster, server, client_error)):
        return Unreachable(f"could not {tried}: {why}")
    return failure


def _login_trouble(
    cluster: ClusterAccess, tried: str, client_error: KafkaError | None
) -> AuthenticationFailed | None:
    if (trouble := token_trouble(cluster)) is not None:
        return TokenUnavailable(f"could not {tried}: {trouble}")
    if client_error is None or client_error.code() != KafkaError._AUTHENTICATION:
        return None
    advice = _login_advice(cluster, client_error)
    return AuthenticationFailed(f"could not {tried}: {words(client_error)}; {advice}")


def in_words(cluster: ClusterAccess, error: KafkaError) -> str:
    """What the client says of its connections to a cluster, as a sentence."""
    return f"{cluster.alias}: {token_trouble(cluster) or words(error)}"


def is_advertised(cluster: ClusterAccess, client_error: KafkaError) -> bool:
    """Whether the error is of a connection to a broker at the address that it gives itself."""
    broker = _broker(client_error)
    refused = client_error.code() in {KafkaError._RESOLVE, KafkaError._TRANSPORT}
    return refused and broker is not None and broker.server not in bootstrap_servers(cluster)


def _broker_trouble(
    cluster: ClusterAccess, server: Server, client_error: KafkaError | None
) -> str | None:
    """A bootstrap server listens; what is the matter with the broker that was asked then?"""
    if client_error is None or (broker := _broker(client_error)) is None:
        if silent := silent_servers(cluster):
            return f"{' and '.join(silent)} {_FROZEN}"
        if cluster.spec.authentication is not None:
            return None
        return (
            f"{shown(server)} is open, and no broker answers there; where its listener wants a "
            f"login, set {cluster.field}.authentication"
        )
    if client_error.code() in {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}:
        return f"broker {broker.id} ({broker.server}) {_FROZEN}"
    if not is_advertised(cluster, client_error):
        return None
    return (
        f"broker {broker.id} advertises {broker.server}, which cannot be reached from here "
        f"({words(client_error)}), while a bootstrap server can; if that broker runs, correct its "
        f"advertised.listeners, or name the listener meant for this network in {cluster.field}."
        "bootstrapServers"
    )


class _Broker(NamedTuple):
    server: str
    id: str


def _broker(client_error: KafkaError) -> _Broker | None:
    """The one that an error names, as ``sasl_ssl://kafka-1:9093/1: Connect to ... failed``."""
    found = re.match(r"(?:\w+://)?([^\s/]+:\d+)/(\d+): ", client_error.str())
    return _Broker(found[1], found[2]) if found else None


def _why_none_listens(cluster: ClusterAccess) -> str:
    """A sentence for each bootstrap server."""
    sentences = dict.fromkeys(map(why_unreachable, bootstrap_servers(cluster)))
    advice = (
        f"correct {cluster.field}.bootstrapServers, or start the brokers; one whose disk is full "
        "ends itself, and says so in its log"
    )
    return "; ".join([*sentences, advice])


def _login_advice(cluster: ClusterAccess, client_error: KafkaError) -> str:
    if "Request not valid in current SASL state" in client_error.str():
        return f"the listener wants no login; leave {cluster.field}.authentication out"
    login = cluster.spec.authentication
    if login is not None and login.oauth is not None:
        return (
            f"the brokers refuse the token of client {login.oauth.client_id}; check "
            f"{cluster.field}.authentication.oauth beside the issuer, audience and keys that the "
            "brokers expect: their log says which does not fit"
        )
    if login is None or login.password is None:
        return f"check {cluster.field}.authentication"
    named = login.username_from
    user = f"in {named.key} of Secret {named.secret_name}" if named else login.username
    return (
        f"check {cluster.field}.authentication: type {login.type}, username {user}, and "
        f"the key {login.password.key} of Secret {login.password.secret_name}"
    )
