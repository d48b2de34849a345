"""Client settings of a cluster's ``config``, as used by the wire client."""

import socket

import pytest
from pydantic import ValidationError
from support.fake_broker import Serve, connect
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.client_settings import SUPPORTED, nearest, owner_of, supported
from headrace.errors import Unreachable
from headrace.kafka import check_settings
from headrace.kafka.wire import Connection, ConnectionSettings, EventLoop, start
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.handshake import Opener, Server
from headrace.kafka.wire.transport import ClientSecurity


def access(**config: str) -> ClusterAccess:
    named = {name.replace("_", "."): value for name, value in config.items()}
    return ClusterAccess(ClusterSpec(alias="east", bootstrap_servers="a:1", config=named))


def test_a_cluster_without_settings_has_the_defaults() -> None:
    assert ConnectionSettings.of(access()) == ConnectionSettings()


def test_settings_have_the_names_of_both_clients() -> None:
    java = access(
        client_id="me",
        request_timeout_ms="7000",
        send_buffer_bytes="65536",
        fetch_max_wait_ms="50",
        max_partition_fetch_bytes="2048",
    )
    librdkafka = access(
        client_id="me",
        socket_timeout_ms="7000",
        socket_send_buffer_bytes="65536",
        fetch_wait_max_ms="50",
        fetch_message_max_bytes="2048",
    )
    found = ConnectionSettings.of(java)
    assert found == ConnectionSettings.of(librdkafka)
    assert (found.client_id, found.request_timeout_s) == ("me", 7.0)
    assert (found.fetch_wait_ms, found.partition_bytes) == (50, 2048)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("request.timeout.ms", "1s", "must be a whole number from 1000 to 600000"),
        ("fetch.min.bytes", "0", "must be a whole number from 1 to 100000000"),
        ("broker.address.family", "ipv6", "must be any or v4 or v6"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ClusterSpec(alias="east", bootstrap_servers="a:1", config={name: value})


def test_no_supported_setting_is_headraces_own() -> None:
    assert [name for one in SUPPORTED for name in one.names if owner_of(name)] == []
    assert supported("linger.ms") is None
    assert nearest("fetch.max.byte") == "fetch.max.bytes"
    assert nearest("zzz") is None


def test_librdkafka_takes_every_supported_setting() -> None:
    values = {"client.id": "me", "client.rack": "a", "broker.address.family": "v4"}
    values |= {"debug": "all"}
    for one in SUPPORTED:
        for name in one.names:
            config = {name: values.get(name, one.default)}
            check_settings(
                ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1", config=config)
            )


def test_an_unknown_setting_names_the_nearest_one() -> None:
    config = {"fetch.max.byte": "1000"}
    with pytest.raises(ValidationError, match=r"not supported; did you mean fetch\.max\.bytes\?"):
        ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1", config=config)


def test_setting_without_a_near_name_lists_the_supported_ones() -> None:
    with pytest.raises(ValidationError, match=r"config supports only client\.id, client\.rack, "):
        ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1", config={"zzz": "1"})


def test_codec_of_producers_names_the_field_of_the_target() -> None:
    with pytest.raises(ValidationError, match=r"see compression of spec\.target"):
        ClusterSpec(
            alias="east", bootstrap_servers="127.0.0.1:1", config={"compression.type": "zstd"}
        )


def test_sockets_have_the_buffers_that_are_set(
    loop: EventLoop, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []
    set_option = socket.socket.setsockopt

    def record(sock: socket.socket, level: int, option: int, value: int) -> None:
        made.append((option, value))
        set_option(sock, level, option, value)

    broker = serve({})
    monkeypatch.setattr(socket.socket, "setsockopt", record)
    connect(loop, broker)
    assert not {socket.SO_SNDBUF, socket.SO_RCVBUF} & {option for option, _ in made}

    connect(loop, broker, send_buffer_bytes=10_000, receive_buffer_bytes=12_000)
    assert {(socket.SO_SNDBUF, 10_000), (socket.SO_RCVBUF, 12_000)} <= set(made)


def test_addresses_of_another_family_are_not_used(loop: EventLoop, serve: Serve) -> None:
    broker = serve({})  # on 127.0.0.1
    server = Server("localhost", broker.port)

    def opened(family: int) -> Connection:
        settings = ConnectionSettings(address_family=family)
        opener = Opener(loop, ClientSecurity(access()), Buffers(), settings)
        return loop.wait(start(opener.open(server)), WITHIN_S)

    assert opened(socket.AF_INET).closed_by is None
    with pytest.raises(Unreachable):
        opened(socket.AF_INET6)
