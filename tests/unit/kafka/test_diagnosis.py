"""Each frequent mistake in an address has its own error, which appears soon."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Fatal, Retriable
from headrace.kafka import Admin, AdminTimings, diagnosis, translate
from headrace.sandbox import Authority
from headrace.sandbox.processes import held_ports


@pytest.fixture
def listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> Iterator[str]:
    with held_ports([None]) as (port,):  # no other process listens there either
        yield f"127.0.0.1:{port}"


class Silent:
    """Client without an answer, which reports these connection errors."""

    def __init__(self) -> None:
        self.on_error: Callable[[KafkaError], None] = print
        self.errors: list[KafkaError] = []
        self.answer: SimpleNamespace | None = None

    def describe_cluster(self, **_: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if self.answer is not None:
            future.set_result(self.answer)
        return future

    def poll(self, _: float) -> int:
        for error in self.errors:
            self.on_error(error)
        return len(self.errors)


def silent_admin(
    monkeypatch: pytest.MonkeyPatch,
    servers: str,
    *errors: tuple[int, str],
    timeout_s: float = 60.0,
) -> tuple[Admin, Silent]:
    client = Silent()
    client.errors = [KafkaError(*error) for error in errors]

    def make_client(config: dict[str, Any]) -> Any:
        client.on_error = config["error_cb"]
        return client

    monkeypatch.setattr(diagnosis, "TIMEOUT_S", 0.1)
    access = ClusterAccess(ClusterSpec(alias="east", bootstrap_servers=servers))
    timings = AdminTimings(grace_s=1.0, poll_interval_s=0.01, unreachable_after_s=0.0)
    return Admin(access, timeout_s, make_client=make_client, timings=timings), client


def failure(admin: Admin) -> str:
    """Return the error of a request, which arrives long before its time-out."""
    began = time.monotonic()
    with pytest.raises(Retriable) as raised:
        admin.cluster_id()
    assert time.monotonic() - began < 30
    return str(raised.value)


def why(
    monkeypatch: pytest.MonkeyPatch,
    servers: str,
    *errors: tuple[int, str],
    timeout_s: float = 60.0,
) -> str:
    """Return the error of the first request to a cluster."""
    return failure(silent_admin(monkeypatch, servers, *errors, timeout_s=timeout_s)[0])


ALL_DOWN = (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def test_a_port_where_nobody_listens(monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    message = why(monkeypatch, closed, (KafkaError._TRANSPORT, "Connect failed"), ALL_DOWN)
    assert f"{closed} refuses connections (no broker listens there); correct " in message
    assert message.endswith("; one whose disk is full ends itself, and says so in its log")
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


def test_it_is_named_while_the_client_does_not_repeat_it(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """The client suppresses a repeated error for 30 s, and then reports how often it occurred."""
    refused = "kafka-1.internal:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    counted = f"{refused} (after 0ms in state CONNECT, 12 identical error(s) suppressed)"
    admin, client = silent_admin(monkeypatch, listener, (KafkaError._TRANSPORT, counted), ALL_DOWN)
    first = failure(admin)
    assert "broker 1 advertises kafka-1.internal:9092" in first
    assert "identical" not in first
    client.errors.pop(0)
    assert failure(admin) == first
    client.answer = SimpleNamespace(cluster_id="east")
    assert admin.cluster_id() == "east"
    client.answer = None
    assert "broker 1 advertises" not in failure(admin)


def test_a_frozen_broker_among_several_is_named(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    text = "kafka-2:9092/2: 1 request(s) timed out: disconnect (after 10012ms in state UP)"
    message = why(monkeypatch, listener, (KafkaError._TIMED_OUT, text), ALL_DOWN)
    assert "broker 2 (kafka-2:9092) accepts connections and does not answer: it is " in message


def test_it_is_named_when_the_client_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """The client reports it after a minute, and a request ends before."""
    with socket.create_server(("127.0.0.1", 0)) as answering:
        servers = f"127.0.0.1:{answering.getsockname()[1]},{listener}"
        with ThreadPoolExecutor() as threads:
            answer = threads.submit(_answer_each, answering, 3)
            admin, _ = silent_admin(monkeypatch, servers, ALL_DOWN)
            monkeypatch.setattr(diagnosis, "TIMEOUT_S", 2.0)  # the first answers
            message = failure(admin)
            assert answer.result(60) == 3
    assert f": {listener} accepts connections and does not answer: it is frozen" in message


def _answer_each(server: socket.socket, connections: int) -> int:
    """Answer each connection of a diagnosis, which looks for a listener, TLS and an answer."""
    server.settimeout(60)
    for _ in range(connections):
        with server.accept()[0] as connection:
            connection.settimeout(0.5)
            with suppress(OSError):
                if connection.recv(100):
                    connection.sendall(b"anything")
    return connections


def test_a_broker_of_the_list_that_is_down_is_not_taken_for_advertised(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    text = f"{listener}/1: Connect to ipv4#{listener} failed: Connection refused"
    message = why(monkeypatch, listener, (KafkaError._TRANSPORT, text), timeout_s=1.0)
    assert message.endswith("no answer in time (2 s)")


@contextmanager
def serving(certificate: bytes, key: bytes, folder: Path) -> Iterator[str]:
    """Yield the address of a listener with TLS that sends no answer."""
    (folder / "server.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server = socket.create_server(("127.0.0.1", 0))

    def shake_hands() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

    thread = threading.Thread(target=shake_hands)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(60)


def test_a_certificate_of_the_brokers_that_has_expired(tmp_path: Path) -> None:
    authority = Authority("brokers")
    expired = authority.issue("east", address="127.0.0.1", valid=timedelta(minutes=-5))
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / "ca.crt").write_bytes(authority.certificate)
    with serving(*expired, tmp_path) as server:
        trusted = {"trustedCertificates": [{"secretName": "ca", "key": "ca.crt"}]}
        spec = ClusterSpec.model_validate(
            {"alias": "east", "bootstrapServers": server, "tls": trusted}
        )
        message = failure(Admin(ClusterAccess(spec, "spec.source", tmp_path), timeout_s=10))
    assert f"the certificate of {server} is refused: certificate has expired" in message
    assert message.endswith("have the brokers' certificate renewed")


@pytest.mark.parametrize(
    "code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED]
)
def test_a_batch_that_a_client_cannot_read_is_not_skipped(code: int) -> None:
    """Readers skip messages whose error a retry may end."""
    error = translate(KafkaError(code), "read orders/0 of east")
    assert isinstance(error, Fatal)
    assert str(error).startswith("could not read orders/0 of east: ")
    assert "compare with kafka-dump-log" in str(error)


def test_a_log_directory_that_failed() -> None:
    error = translate(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), "write to orders/0 of west")
    assert isinstance(error, Retriable)
    assert str(error).startswith("could not write to orders/0 of west: ")
    assert "its disk is full: its log says why; make room, and restart it" in str(error)


@pytest.mark.parametrize(
    ("server", "pod", "advice"),
    [
        ("kafka.east.svc:9092", "", "`headrace job` prints Jobs"),
        ("kafka.east.svc.cluster.local:9092", "", "`headrace job` prints Jobs"),
        ("kafka.east.svc:9092", "10.0.0.1", "bootstrapServers, or start the brokers"),
        ("kafka.east:9092", "", "bootstrapServers, or start the brokers"),
    ],
)
def test_names_of_a_kubernetes_cluster_are_explained_outside_it(
    monkeypatch: pytest.MonkeyPatch, server: str, pod: str, advice: str
) -> None:
    def create_connection(*_: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", pod)
    message = why(monkeypatch, server, ALL_DOWN)
    assert "does not resolve" in message
    assert advice in message
