"""Brokers, topics and leaders of a cluster, and a connection to each broker."""

import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponseTopic
from kio.schema.types import TopicName

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import HeadraceError, Unreachable
from headrace.kafka.errors import AccessDenied
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.errors import ForeignBroker, UnsupportedBroker
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.handshake import ConnectionSettings, Opener, Server
from headrace.kafka.wire.loop import EventLoop, Reply, start
from headrace.kafka.wire.protocol import Call, call
from headrace.kafka.wire.transport import ClientSecurity
from headrace.timing import Backoff


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker."""

    server: Server
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """Leader, leader epoch and replicas of one partition."""

    leader: int
    """Node id of the leader, or -1 if there is none."""
    epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """Partitions of one topic, or the error that prevents reading them."""

    name: str
    id: UUID | None
    error: ErrorCode
    partitions: Mapping[int, Leadership]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Brokers and topics of a cluster according to the latest responses. Immutable."""

    cluster_id: str | None = None
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def leadership(self, at: TopicPartition) -> Leadership | None:
        """Return the leadership of a partition, or None if no live leader is known."""
        topic = self.topics.get(at.topic)
        found = None if topic is None else topic.partitions.get(at.partition)
        return found if found is not None and found.leader in self.brokers else None

    def ids(self, topics: Iterable[str]) -> dict[str, UUID | None]:
        """Return the id of each topic.

        It is None if the topic is unknown or the cluster has no ids.
        """
        known = self.topics
        return {name: known[name].id if name in known else None for name in topics}


def updated(
    view: ClusterMetadata, response: MetadataResponse, asked: Iterable[str] | None
) -> ClusterMetadata:
    """Return the metadata with the content of a response applied.

    ``asked`` contains the requested topics. None means all topics. A leadership with a lower epoch
    than the known one comes from a broker whose metadata is outdated. It is ignored unless the
    topic was created again (KIP-320). Without topic ids (before Kafka 2.8) that cannot be detected,
    and the response always applies.
    """
    brokers: dict[int, Broker] = {
        broker.node_id: Broker(Server(broker.host, broker.port), broker.rack)
        for broker in response.brokers
    }
    gone = set(view.topics) if asked is None else set(asked)
    topics = {name: one for name, one in view.topics.items() if name not in gone}
    for reported in response.topics:
        if reported.name is not None:
            topics[reported.name] = _topic(reported, view.topics.get(reported.name))
    return ClusterMetadata(response.cluster_id, MappingProxyType(brokers), MappingProxyType(topics))


def _topic(reported: MetadataResponseTopic, known: TopicView | None) -> TopicView:
    same = known is not None and known.id is not None and known.id == reported.topic_id
    partitions: dict[int, Leadership] = {}
    for one in reported.partitions:
        new = Leadership(one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes)
        old = known.partitions.get(one.partition_index, new) if known and same else new
        partitions[one.partition_index] = old if old.epoch > new.epoch else new
    name = reported.name or ""
    return TopicView(name, reported.topic_id, reported.error_code, MappingProxyType(partitions))


def led_by(view: ClusterMetadata, at: TopicPartition, leader: int, epoch: int) -> ClusterMetadata:
    """Return the metadata with a new leader from a Fetch response (KIP-951).

    An epoch that is not newer than the known one changes nothing.
    """
    topic = view.topics.get(at.topic)
    if topic is None or at.partition not in topic.partitions:
        return view
    known = topic.partitions[at.partition]
    if known.epoch >= epoch:
        return view
    changed = {**topic.partitions, at.partition: replace(known, leader=leader, epoch=epoch)}
    topics = {**view.topics, at.topic: replace(topic, partitions=MappingProxyType(changed))}
    return replace(view, topics=MappingProxyType(topics))


_Key = tuple[Server, str]


@dataclass(slots=True)
class _Round:
    """One refresh of the metadata, shared by several callers."""

    topics: Set[str] | None = frozenset()
    reply: Reply[ClusterMetadata] = field(default_factory=Reply)


class ClusterClient:
    """Client of one cluster. Opens connections when they are needed.

    Not thread-safe: call it from the thread of its loop.
    """

    def __init__(
        self,
        loop: EventLoop,
        access: ClusterAccess,
        settings: ConnectionSettings | None = None,
        *,
        buffers: Buffers | None = None,
    ) -> None:
        """Create a client without connections.

        Args:
            loop: Event loop of the client.
            access: Addresses and credentials of the cluster.
            settings: Settings of connections. The default is read from ``access``.
            buffers: Pool for responses, which all clusters of a loop may share.
        """
        self.loop = loop
        self.view = ClusterMetadata()
        """Known brokers and topics. ``refresh`` replaces this object."""
        self.name = access.name
        """Name of the cluster for messages."""
        self.cluster_id = access.cluster_id
        """Id of the cluster. Brokers that report another id are not used.

        If no id is expected, the first broker that responds sets it.
        """
        self.settings = settings = settings or ConnectionSettings.of(access)
        self._opener = Opener(loop, ClientSecurity(access), buffers or Buffers(), settings)
        self._bootstrap = [_server(one) for one in access.bootstrap_servers.split(",")]
        self._connections: dict[_Key, Reply[Connection]] = {}
        self._resting: dict[Server, tuple[Backoff, float]] = {}
        self._closed = False
        self._refreshing = False
        self._next: _Round | None = None
        """Next refresh, which starts after the current one."""

    async def refresh(self, topics: Iterable[str] | None = ()) -> ClusterMetadata:
        """Refresh the brokers and these topics, and return the metadata.

        None refreshes all topics. Topics are not created: a missing topic is in the metadata with
        its error. There is one request at a time, and callers during a request share the next one.

        Raises:
            Unreachable: No broker responded.
            AccessDenied: The brokers reject the login or the TLS connection.
            UnsupportedBroker: The brokers are too old.
        """
        if self._next is None:
            self._next = _Round()
        mine = self._next
        every = mine.topics is None or topics is None
        mine.topics = None if every else frozenset({*(mine.topics or ()), *(topics or ())})
        if not self._refreshing:
            start(self._refresh_rounds())
        return await mine.reply

    async def _refresh_rounds(self) -> None:
        self._refreshing = True
        while (current := self._next) is not None:
            self._next = None
            try:
                view = await self._refresh(current.topics)
            except Exception as error:  # noqa: BLE001  # raised in the waiting callers
                current.reply.fail(error)
            else:
                current.reply.succeed(view)
        self._refreshing = False

    async def _refresh(self, topics: Set[str] | None) -> ClusterMetadata:
        asked = None if topics is None else sorted(topics)
        connection = await self.any_connection()
        response = await connection.send(metadata_call(asked))
        self.view = updated(self.view, response, asked)
        self._drop_unused()
        return self.view

    async def check_brokers(self, within_s: float = inf) -> None:
        """Raise ``ForeignBroker`` if a broker of another cluster responds at a known address.

        Brokers that are unreachable, or do not respond within ``within_s``, are ignored.
        """
        view = await self.refresh()
        servers = {broker.server for broker in view.brokers.values()} | set(self._bootstrap)
        asked = [start(self._connect(server, "")) for server in servers]
        compared: Reply[None] = Reply()
        if within_s < inf:
            self.loop.call_later(within_s, lambda: compared.succeed(None))

        def check(reply: Reply[Connection]) -> None:
            if isinstance(reply.error, ForeignBroker):
                compared.fail(reply.error)
            elif all(one.done for one in asked):
                compared.succeed(None)

        for one in asked:
            one.then(check)
        await compared

    async def connection(self, node: int, purpose: str = "") -> Connection:
        """Return a connection to a broker in ``view``.

        A Fetch that waits for data delays later requests on its connection. Other requests
        therefore use a connection with another ``purpose``.
        """
        broker = self.view.brokers.get(node)
        if broker is None:
            raise Unreachable(f"broker {node} of {self.name} is not among the live ones")
        return await self._connect(broker.server, purpose)

    async def any_connection(self) -> Connection:
        """Return a connection to any broker that responds.

        An open connection is preferred. Otherwise the known brokers and the bootstrap servers are
        tried in random order, with servers that failed recently last. If a server does not respond
        within ``settings.silent_after_s``, the next one is tried in parallel.
        """
        for (_, purpose), reply in self._connections.items():
            if not purpose and reply.done and not reply.error:
                return reply.result()
        known = [broker.server for broker in self.view.brokers.values()]
        candidates = list(dict.fromkeys([*_shuffled(known), *_shuffled(self._bootstrap)]))
        candidates.sort(key=lambda server: self._resting.get(server, (None, 0.0))[1])
        asked: list[Reply[Connection]] = []
        for server in candidates:
            asked.append(start(self._connect(server, "")))
            if (found := await self._first(asked, last=len(asked) == len(candidates))) is not None:
                return found
        raise _worst(self.name, asked)

    def _first(self, asked: Sequence[Reply[Connection]], *, last: bool) -> Reply[Connection | None]:
        """Return the first open connection.

        Return None if all attempts have failed, or after ``settings.silent_after_s`` unless
        ``last`` is True.
        """
        first: Reply[Connection | None] = Reply()
        if not last:
            self.loop.call_later(self.settings.silent_after_s, lambda: first.succeed(None))

        def check(_: Reply[Connection]) -> None:
            if good := [one for one in asked if one.done and not one.error]:
                first.succeed(good[0].result())
            elif all(one.done for one in asked):
                first.succeed(None)

        for one in asked:
            one.then(check)
        return first

    def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        self._closed = True
        for reply in list(self._connections.values()):
            if reply.done and not reply.error:
                reply.result().close()
        self._connections.clear()

    async def _connect(self, server: Server, purpose: str) -> Connection:
        key = server, purpose
        if (reply := self._connections.get(key)) is None:
            reply = self._connections[key] = start(self._open(key))
            reply.then(lambda done: self._forget(key, done) if done.error else None)
        return await reply

    async def _open(self, key: _Key) -> Connection:
        server, _ = key
        backoff, until_s = self._resting.get(server) or (Backoff(0.1, 5.0), 0.0)
        if (rest_s := until_s - self.loop.now_s()) > 0:
            await self.loop.sleep(rest_s)
        if self._closed:
            raise Unreachable(f"the client of {self.name} is closed")
        try:
            connection = await self._opener.open(server, closed=lambda _: self._forget(key))
            await self._check_identity(connection, server)
        except HeadraceError:
            self._resting[server] = backoff, self.loop.now_s() + backoff.next_s()
            raise
        self._resting.pop(server, None)
        if self._closed:
            connection.close()
        return connection

    async def _check_identity(self, connection: Connection, server: Server) -> None:
        """Check the cluster id on a new connection before any other request.

        An address may have been reused by a broker of another cluster, for example the address of a
        pod (KIP-1242).
        """
        timeout_s = self.settings.connect_timeout_s
        response = await connection.send(metadata_call(()), timeout_s=timeout_s)
        if self.cluster_id is None:
            self.cluster_id = response.cluster_id
        if response.cluster_id != self.cluster_id:
            error = ForeignBroker(
                f"{server} belongs to another cluster than {self.name}: its cluster id is "
                f"{response.cluster_id}, and {self.cluster_id} is expected. Nothing is read from "
                "it or written to it"
            )
            connection.close(error)
            raise error

    def _forget(self, key: _Key, reply: Reply[Connection] | None = None) -> None:
        if reply is None or self._connections.get(key) is reply:
            self._connections.pop(key, None)

    def _drop_unused(self) -> None:
        """Close connections to brokers that were removed or have another address."""
        live = {broker.server for broker in self.view.brokers.values()} | set(self._bootstrap)
        for (server, _), reply in list(self._connections.items()):
            if server not in live and reply.done and not reply.error:
                reply.result().close()


def metadata_call(
    topics: Sequence[str] | None, *, operations: bool = False
) -> Call[MetadataResponse]:
    """Return a Metadata request for these topics, or for all topics if ``topics`` is None.

    The request creates no topics. ``operations`` requests the operations that the principal may
    perform on each topic.
    """
    wanted = None
    if topics is not None:
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(one)) for one in topics)
    request = MetadataRequest(
        topics=wanted,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations,
    )
    return call(request, MetadataResponse)


def _server(written: str) -> Server:
    host, _, port = written.strip().rpartition(":")
    return Server(host.strip("[]"), int(port))


def _shuffled(servers: Iterable[Server]) -> list[Server]:
    """Return the servers in random order, to spread clients over the brokers."""
    listed = list(servers)
    random.shuffle(listed)
    return listed


def _worst(name: str, asked: Iterable[Reply[Connection]]) -> BaseException:
    """Return the most informative error.

    The order is: an internal error, a rejected login, an unsupported broker, an unreachable broker.
    """
    failures = [one.error for one in asked if one.error is not None]
    if ours := [one for one in failures if not isinstance(one, HeadraceError)]:
        return ours[0]
    for first in (AccessDenied, UnsupportedBroker):
        if found := next((one for one in failures if isinstance(one, first)), None):
            return found
    reasons = "; ".join(dict.fromkeys(map(str, failures)))
    foreign = any(isinstance(one, ForeignBroker) for one in failures)
    kind = ForeignBroker if foreign else Unreachable
    return kind(f"no broker of {name} answers: {reasons}")
