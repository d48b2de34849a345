"""A broker for unit tests: a real socket on loopback, answering from a script."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v3 import response as versions
from kio.schema.describe_acls.v2 import DescribeAclsResponse
from kio.schema.end_txn.v3 import EndTxnRequest, EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import response as coordinators
from kio.schema.metadata.v12 import response as metadata
from kio.schema.types import BrokerId, ProducerId, TopicName, TransactionalId
from kio.serial import entity_reader
from kio.static.primitive import i16, i32, i32Timedelta
from support.batches import encoded
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.handshake import ConnectionSettings, Opener, Server
from headrace.kafka.wire.loop import EventLoop, start
from headrace.kafka.wire.protocol import PRODUCE, SPOKEN, Call, call, converted
from headrace.kafka.wire.transport import ClientSecurity

NOT_THROTTLED = i32Timedelta.parse(timedelta())


@dataclass(frozen=True)
class Raw:
    """Bytes that are sent instead of a response; the connection may be closed afterwards."""

    content: bytes
    close: bool = False


@dataclass(frozen=True)
class Request:
    """A request as the script sees it."""

    api_key: int
    correlation_id: int
    message: Any
    body: bytes
    version: int


class Silence:
    """A request that gets no answer."""


END_TXN, FIND_COORDINATOR = 26, 10
ACCEPTED = EndTxnResponse(throttle_time=NOT_THROTTLED, error_code=ErrorCode.none)


def end_txn(name: str = "tx") -> Call[EndTxnResponse]:
    """Return a request that needs no preparation."""
    request = EndTxnRequest(
        transactional_id=TransactionalId(name),
        producer_id=ProducerId(1),
        producer_epoch=i16(0),
        committed=False,
    )
    return call(request, EndTxnResponse)


Answer = Any  # a message of kio's, its bytes, Raw or Silence
Script = Mapping[int, Callable[[Request], Answer]]


def served(changed: Mapping[int, tuple[int, int]] = {}) -> versions.ApiVersionsResponse:
    """Return the API versions of a broker of the newest release that this client supports.

    ``changed`` replaces the range of some keys. Scripts name topics in Produce.
    """
    ranges = {key: (newest, newest) for key, (_, newest) in SPOKEN.items()}
    ranges |= {PRODUCE: (9, 9), **changed}
    return versions.ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            versions.ApiVersion(api_key=i16(key), min_version=i16(least), max_version=i16(most))
            for key, (least, most) in ranges.items()
        ),
        throttle_time=NOT_THROTTLED,
    )


def acls_are_listed(code: ErrorCode) -> Script:
    """Return a script that answers with that code, and lists no ACL."""
    answer = DescribeAclsResponse(
        throttle_time=NOT_THROTTLED, error_code=code, error_message=None, resources=()
    )
    return {DescribeAclsResponse.__api_key__: lambda _: answer}


def coordinated_by(
    nodes: Mapping[str, int], code: ErrorCode = ErrorCode.none
) -> coordinators.FindCoordinatorResponse:
    """Return the response that names each group's coordinator."""
    return coordinators.FindCoordinatorResponse(
        throttle_time=NOT_THROTTLED,
        coordinators=tuple(
            coordinators.Coordinator(
                key=group,
                node_id=BrokerId(node),
                host="127.0.0.1",
                port=i32(0),
                error_code=code,
                error_message=None,
            )
            for group, node in nodes.items()
        ),
    )


def coordinated_by_first(request: Request) -> coordinators.FindCoordinatorResponse:
    """Return broker 1 as the coordinator of all requested keys."""
    return coordinated_by(dict.fromkeys(request.message.coordinator_keys, 1))


def in_turn(*answers: Answer) -> Callable[[Request], Answer]:
    """Return a script step that gives one answer after the other."""
    left = iter(answers)
    return lambda _: next(left)


def framed(request: Request, answer: Any, correlation_id: int | None = None) -> bytes:
    """Return a response with its header, in the request's version."""
    schema: Any = load_response_schema(i16(request.api_key), i16(request.version))
    number = request.correlation_id if correlation_id is None else correlation_id
    if not isinstance(answer, bytes) and answer.__version__ != request.version:
        answer = converted(answer, schema, without=["topic_id"])
    header = encoded(schema.__header_schema__(correlation_id=i32(number)))
    content = header + (answer if isinstance(answer, bytes) else encoded(answer))
    return struct.pack(">i", len(content)) + content


class FakeBroker:
    """A broker that serves until it is closed; ``seen`` lists all requests except for versions."""

    def __init__(self, script: Script, context: ssl.SSLContext | None = None) -> None:
        self.script = {
            18: lambda _: served(),
            3: lambda _: metadata_of({1: self.port}, {}),
            **script,
        }
        self.seen: list[Request] = []
        self.connections = 0
        """Number of connections so far."""
        self.connected = 0
        """Number of open connections."""
        self.came = threading.Condition()
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End the listener and all connections."""
        for sock in (self._listener, *self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def drop(self) -> None:
        """End the connections, and take new ones."""
        while self._open:
            sock = self._open.pop()
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def requests(self, api_key: int) -> list[Any]:
        """Return the requests of one kind that arrived so far."""
        return [request.message for request in self.seen if request.api_key == api_key]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self.came:
                self.connections += 1
                self.connected += 1
            self._open.append(sock)
            threading.Thread(target=self._serve_counted, args=(sock,), daemon=True).start()

    def _serve_counted(self, sock: socket.socket) -> None:
        try:
            self._serve(sock)
        finally:
            with self.came:
                self.connected -= 1

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                self._open.append(sock)
            with sock, sock.makefile("rb") as stream:
                while prefix := stream.read(4):
                    (size,) = struct.unpack(">i", prefix)
                    content = stream.read(size)
                    if len(content) < size or not self._answer(sock, content):
                        return
        except (OSError, ValueError, struct.error):
            return  # the client has disconnected, or the test is over

    def _answer(self, sock: socket.socket, content: bytes) -> bool:
        request = _parsed(content)
        if request.api_key != 18:
            with self.came:
                self.seen.append(request)
                self.came.notify_all()
        try:
            answer = self.script[request.api_key](request)
        except ValueError as error:  # not one of a connection that ends
            raise AssertionError(f"the script cannot answer {request.message}") from error
        if isinstance(answer, Silence):
            return True
        if isinstance(answer, Raw):
            sock.sendall(answer.content)
            return not answer.close
        sock.sendall(framed(request, answer))
        return True


def _parsed(content: bytes) -> Request:
    key, version = struct.unpack_from(">hh", content)
    schema: Any = load_request_schema(i16(key), i16(version))
    header, place = entity_reader(schema.__header_schema__)(content, 0)
    message, size = entity_reader(cast(Any, schema))(content, place)
    assert place + size == len(content), "the request is longer than its schema"
    return Request(key, header.correlation_id, message, content[place:], version)


Told = dict[int, tuple[int, int]]
"""Leader and epoch of each partition."""
TOPIC_ID = UUID(int=7)


def metadata_of(
    brokers: dict[int, int],
    partitions: Told,
    topic_id: UUID = TOPIC_ID,
    topic: str = "orders",
    code: ErrorCode = ErrorCode.none,
    *,
    cluster_id: str = "east-id",
) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        throttle_time=NOT_THROTTLED,
        brokers=tuple(
            metadata.MetadataResponseBroker(
                node_id=BrokerId(node), host="127.0.0.1", port=i32(port)
            )
            for node, port in brokers.items()
        ),
        cluster_id=cluster_id,
        topics=(
            metadata.MetadataResponseTopic(
                error_code=code,
                name=TopicName(topic),
                topic_id=topic_id,
                partitions=tuple(
                    metadata.MetadataResponsePartition(
                        error_code=ErrorCode.none,
                        partition_index=i32(partition),
                        leader_id=BrokerId(leader),
                        leader_epoch=i32(epoch),
                        replica_nodes=(),
                        isr_nodes=(),
                        offline_replicas=(),
                    )
                    for partition, (leader, epoch) in partitions.items()
                ),
            ),
        ),
    )


Serve = Callable[..., FakeBroker]


@contextmanager
def serving() -> Iterator[Serve]:
    """Yield ``serve({key: answer})``, which starts brokers that live as long as the block."""
    brokers: list[FakeBroker] = []

    def start_one(script: Script, **more: Any) -> FakeBroker:
        brokers.append(FakeBroker(script, **more))
        return brokers[-1]

    try:
        yield start_one
    finally:
        for broker in brokers:
            broker.close()


def connect(
    loop: EventLoop, broker: FakeBroker, access: ClusterAccess | None = None, **settings: Any
) -> Connection:
    """Return an open, authenticated connection to the broker."""
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    security = ClientSecurity(access or ClusterAccess(spec))
    opener = Opener(loop, security, Buffers(), ConnectionSettings(**settings))
    return loop.wait(start(opener.open(Server("127.0.0.1", broker.port))), WITHIN_S)
