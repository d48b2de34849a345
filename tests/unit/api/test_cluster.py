"""A cluster's addresses, and settings that a user cannot change."""

from typing import Any

import pytest
from pydantic import ValidationError
from support.manifests import Say

from headrace.api import ClusterSpec, TargetClusterSpec
from headrace.api.client_settings import OWNED, owner_of

DOCUMENT = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "MirrorTest",
    "metadata": {"name": "orders"},
}
TARGET = {"alias": "west", "bootstrapServers": "west:9092"}


def source(**cluster: Any) -> dict[str, Any]:
    smallest = {"alias": "east", "bootstrapServers": "east:9092"}
    return DOCUMENT | {"spec": {"source": smallest | cluster, "target": TARGET}}


@pytest.mark.parametrize(
    "servers", ["a:1", "127.0.0.1:19092", "a.b-c:9092,d_e:65535", "[::1]:9092", "a:1, b:2"]
)
def test_addresses(servers: str) -> None:
    assert ClusterSpec(alias="east", bootstrap_servers=servers).bootstrap_servers == servers


@pytest.mark.parametrize(
    "servers", ["", "east", "east:", ":9092", "a:0", "a:65536", "a:1,", "a:1,,b:2", "ssl://a:1"]
)
def test_what_is_no_address(say: Say, servers: str) -> None:
    (message,) = say(source(bootstrapServers=servers))
    assert message.endswith(
        f'spec.source.bootstrapServers: got "{servers}", '
        "must be host:port, or several of them separated by commas"
    )


@pytest.mark.parametrize("alias", ["East", "east_1", "-east", "east-", "a.b", "ö", "a" * 64, ""])
def test_what_is_no_alias(say: Say, alias: str) -> None:
    (message,) = say(source(alias=alias))
    assert "spec.source.alias: got" in message


@pytest.mark.parametrize(
    ("authentication", "sentence"),
    [
        ({}, "spec.source.authentication.type: is required"),
        (
            {"type": "SCRAM-SHA-512"},
            'spec.source.authentication.type: got "SCRAM-SHA-512", '
            "must be Plain, ScramSha256, ScramSha512 or OAuthBearer; did you mean ScramSha512?",
        ),
        (
            {"type": "Plain", "username": "a"},
            "spec.source.authentication.password: is required with type: "
            "Plain, ScramSha256 or ScramSha512",
        ),
        (
            {"type": "Plain", "password": {"secretName": "a", "key": "b"}},
            "spec.source.authentication.username: is required with type: "
            "Plain, ScramSha256 or ScramSha512",
        ),
        (
            {"type": "Plain", "username": "a", "password": {"secretName": "a", "key": "b/c"}},
            "spec.source.authentication.password.key: "
            "must be a Secret's key: letters, digits, '-', '_', '.'",
        ),
        (
            {
                "type": "Plain",
                "username": "a",
                "usernameFrom": {"secretName": "a"},
                "password": {"secretName": "a"},
            },
            "spec.source.authentication.usernameFrom: must not be set beside username",
        ),
        (
            {
                "type": "OAuthBearer",
                "usernameFrom": {"secretName": "a"},
                "oauth": {
                    "tokenEndpoint": "https://a",
                    "clientId": "a",
                    "clientSecret": {"secretName": "a", "key": "b"},
                },
            },
            "spec.source.authentication.usernameFrom: is not used with type: OAuthBearer, which "
            "takes oauth",
        ),
    ],
)
def test_authentication(say: Say, authentication: object, sentence: str) -> None:
    assert [
        message.partition(" ")[2] for message in say(source(authentication=authentication))
    ] == [sentence]


@pytest.mark.parametrize("trusted", [{}, {"secretName": "a", "configMapName": "b"}])
def test_certificate_authorities_are_in_one_object(say: Say, trusted: object) -> None:
    (message,) = say(source(tls={"trustedCertificates": [trusted]}))
    assert "spec.source.tls.trustedCertificates[0]: " in message
    assert message.endswith("must have either secretName or configMapName")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"acks": 1},
            "config.acks: cannot be set here: "
            "a record counts only when all in-sync replicas have it",
        ),
        (
            {"bootstrap.servers": "a:1"},
            "config[bootstrap.servers]: cannot be set here: use bootstrapServers",
        ),
        (
            {"security.protocol": "SSL"},
            "config[security.protocol]: cannot be set here: use tls and authentication",
        ),
        ({"ssl.ca.location": "a"}, "config[ssl.ca.location]: cannot be set here: use tls"),
        (
            {"sasl.password": "hidden"},
            "config[sasl.password]: cannot be set here: use authentication",
        ),
        (
            {"queue.buffering.max.messages": "10"},
            "config[queue.buffering.max.messages]: cannot be set here: headrace bounds what is in "
            "flight, and the producer's queue must hold all of it, in order",
        ),
        (
            {"linger.ms": [5]},
            "config[linger.ms]: must be text (in quotes, where it looks like something else)",
        ),
        (
            {"socket.keepalive.enable": True},
            "config[socket.keepalive.enable]: must be text or a whole number: put it in quotes",
        ),
        (
            {"linger.ms": None},
            "config[linger.ms]: must be text (in quotes, where it looks like something else)",
        ),
    ],
)
def test_settings_that_are_refused(say: Say, config: dict[str, object], sentence: str) -> None:
    assert [message.partition(" ")[2] for message in say(source(config=config))] == [
        f"spec.source.{sentence}"
    ]


def test_every_setting_that_the_guarantees_hang_on_is_owned() -> None:
    settings = (
        "bootstrap.servers isolation.level enable.auto.commit auto.offset.reset acks "
        "enable.idempotence transactional.id group.id partitioner message.timeout.ms "
        "security.protocol sasl.mechanism ssl.key.password error_cb check.crcs retries "
        "queue.buffering.max.messages queue.buffering.max.kbytes queuing.strategy "
        "max.in.flight max.in.flight.requests.per.connection"
    )
    assert [setting for setting in settings.split() if not owner_of(setting)] == []
    assert [setting for setting in OWNED if not owner_of(setting)] == []


def test_settings_may_be_written_without_quotes() -> None:
    config = {"fetch.min.bytes": 20, "client.id": "x"}
    cluster = ClusterSpec.model_validate(
        {"alias": "east", "bootstrapServers": "a:1", "config": config}
    )
    assert cluster.config == {"fetch.min.bytes": "20", "client.id": "x"}


@pytest.mark.parametrize("factor", [0, -1, 32768])
def test_replication_factor(factor: int) -> None:
    with pytest.raises(ValidationError, match=r"(greater|less) than or equal to (1|32767)"):
        TargetClusterSpec(alias="west", bootstrap_servers="a:1", replication_factor=factor)
