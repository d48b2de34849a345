"""Each of the commonest mistakes with an address has its own sentence, soon."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Retriable
from headrace.kafka import Admin


@pytest.fixture
def listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"127.0.0.1:{port}"


class Silent:
    """A client without an answer, which says of its connections what it is given."""

    def __init__(self, on_error: Callable[[KafkaError], None], errors: Sequence[KafkaError]):
        self._on_error, self._errors = on_error, errors

    def describe_cluster(self, **_: Any) -> "Future[Any]":
        return Future()

    def poll(self, _: float) -> int:
        for error in self._errors:
            self._on_error(error)
        return len(self._errors)


def why(monkeypatch: pytest.MonkeyPatch, servers: str, *errors: tuple[int, str]) -> str:
    """What the first request to a cluster ends with; soon after one second, not after ten."""
    made = [KafkaError(*error) for error in errors]
    monkeypatch.setattr(
        "headrace.kafka.admin.construct",
        lambda _, cluster, config: Silent(config["error_cb"], made),
    )
    spec = ClusterSpec(alias="east", bootstrap_servers=servers)
    began = time.monotonic()
    with pytest.raises(Retriable) as raised:
        Admin(ClusterAccess(spec), timeout_s=60).cluster_id()
    assert time.monotonic() - began < 30
    return str(raised.value)


ALL_DOWN = (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def test_a_port_where_nobody_listens(monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    message = why(monkeypatch, closed, (KafkaError._TRANSPORT, "Connect failed"), ALL_DOWN)
    assert f"{closed} refuses connections (no broker listens there); correct " in message
    assert "could not read the cluster id of east" in message


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_connection(*_: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    message = why(monkeypatch, "kafka-est:9092,kafka-est:9093", ALL_DOWN)
    assert message.count("the name kafka-est does not resolve (Name or service not known)") == 1


def test_a_listener_that_is_advertised_and_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    text = "kafka-1.internal:9092/1: Failed to resolve 'kafka-1.internal:9092': Name not known"
    message = why(monkeypatch, listener, (KafkaError._RESOLVE, text))
    assert "broker 1 advertises kafka-1.internal:9092, which cannot be reached from " in message
    assert "correct its advertised.listeners" in message


def test_a_frozen_broker_among_several_is_named(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    text = "kafka-2:9092/2: 1 request(s) timed out: disconnect (after 10012ms in state UP)"
    message = why(monkeypatch, listener, (KafkaError._TIMED_OUT, text), ALL_DOWN)
    assert "broker 2 (kafka-2:9092) accepts connections and does not answer: it is " in message


def test_a_broker_of_the_list_that_is_down_is_not_taken_for_advertised(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    monkeypatch.setattr("headrace.kafka.admin.GRACE_S", -58.0)
    text = f"{listener}/1: Connect to ipv4#{listener} failed: Connection refused"
    message = why(monkeypatch, listener, (KafkaError._TRANSPORT, text))
    assert message.endswith("no answer in time (2 s)")
