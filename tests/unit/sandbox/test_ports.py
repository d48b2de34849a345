"""Ports that are free, and stay so until a broker listens."""

import socket
from collections.abc import Iterator

import pytest

from headrace.errors import InvalidSpec
from headrace.sandbox.processes import HOST, held_ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_a_given_port_in_use_is_named(taken: int) -> None:
    with (
        pytest.raises(InvalidSpec, match=f"port {taken} on {HOST} is in use. Set another port"),
        held_ports([None, taken]),
    ):
        pass


def test_a_port_cannot_be_given_twice() -> None:
    with (
        held_ports([None]) as (free,),  # no other process takes it meanwhile
        pytest.raises(InvalidSpec, match=f"port {free} is requested twice"),
        held_ports([free] * 2),
    ):
        pass


def test_picked_ports_differ_and_a_broker_can_listen_on_them_while_they_are_held() -> None:
    with held_ports([None] * 20) as ports, held_ports([None] * 20) as others:
        assert len({*ports, *others}) == 40
        for port in ports:
            # As Java does: SO_REUSEADDR, then bind and listen.
            with socket.create_server((HOST, port)):
                socket.create_connection((HOST, port), timeout=1).close()


def test_a_given_port_is_had_and_can_be_listened_on() -> None:
    with held_ports([None]) as (free,), held_ports([free, None]) as (given, picked):
        assert given == free != picked
        socket.create_server((HOST, given)).close()


def test_a_held_port_is_not_taken_by_outgoing_connections(taken: int) -> None:
    with held_ports([None] * 5) as ports, socket.create_connection((HOST, taken)) as connection:
        assert connection.getsockname()[1] > max(ports)
