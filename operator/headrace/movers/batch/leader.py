"""The brokers of the target: a connection to each, and whose turn it is there.

Several appenders may share them: a request costs as much as copying some 50 KB, so that it should
have a batch of each partition that has one, whichever task copies it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    Buffer,
    ClusterClient,
    Connection,
    Produced,
    Reply,
    produce_call,
    start,
)
from headrace.movers.batch.queue import IN_FLIGHT, Entry, PartitionQueue, QueueListener, State

_REQUEST_BYTES = 4 << 20
"""Maximum size of a request with several batches; one batch may be larger."""
_TIMEOUT_MS = 20_000
"""For the target's replicas; its answer then comes before we give the connection up."""
_ANSWER_WITHIN_S = 30.0

_PURPOSE = "append"

Sent = Sequence[Entry]
"""Content of one request: at most one batch of each partition."""


class Leader:
    """Sends what its partitions have, each one batch at a time, in turns."""

    def __init__(self, cluster: ClusterClient, node: int, transactional_id: str | None) -> None:
        self._cluster, self._node = cluster, node
        self._transactional_id = transactional_id
        self._purpose = f"{_PURPOSE} {transactional_id}" if transactional_id else _PURPOSE
        self.turns: deque[PartitionQueue] = deque()
        """Partitions that are ``listed``: they may have something to send."""
        self._connection: Connection | None = None
        self._opening = self._closed = False
        self._in_flight = 0

    def enlist(self, queue: PartitionQueue) -> None:
        """Add a queue that has data to send."""
        if not queue.listed:
            queue.listed = True
            self.turns.append(queue)

    def pump(self) -> None:
        """Send what may be sent, without waiting."""
        while self.turns and self._in_flight < IN_FLIGHT:
            connection = self._connection
            if connection is None or connection.closed_by is not None:
                self._connect()
                return
            if not (sent := self._next()):
                return
            self._send(connection, sent)

    def close(self) -> None:
        """End the connection: what is in flight fails."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> Sent:
        """Take at most one batch of each partition, in turns. This runs for each batch."""
        sent: list[Entry] = []
        ats: set[TopicPartition] = set()
        size, turns = 0, self.turns
        for _ in range(len(turns)):
            queue = turns[0]
            place, entries = queue.place, queue.entries
            entry: Entry | None
            if (
                place < IN_FLIGHT
                and place < len(entries)
                and entries[place].state is State.QUEUED
                and queue.known_s is not None
                and queue.again is None
                and not (queue.resting or queue.failed or queue.held)
            ):
                entry = entries[place]  # as ``next`` finds it, without a call
            else:
                entry = queue.next()
            if entry is None:
                turns.popleft().listed = False
                continue
            if sent and size + entry.size > _REQUEST_BYTES:
                break
            if queue.at not in ats:  # an earlier lane may still have some of this partition
                entry.state, entry.tried = State.ON_WIRE, True
                queue.place += 1
                queue.on_wire += 1
                queue.again = None
                size += entry.size
                ats.add(queue.at)
                sent.append(entry)
            turns.rotate(-1)
        return sent

    def _send(self, connection: Connection, sent: Sent) -> None:
        batches: dict[str, dict[int, Buffer | tuple[Buffer, Buffer]]] = {}
        for entry in sent:
            at = entry.queue.at
            batches.setdefault(at.topic, {})[at.partition] = entry.parts
        self._in_flight += 1
        call = produce_call(
            batches,
            timeout_ms=_TIMEOUT_MS,
            transactional_id=self._transactional_id,
            topic_ids=self._cluster.view.ids(batches),
        )
        reply = connection.send(call, timeout_s=_ANSWER_WITHIN_S)
        reply.then(partial(self._came, sent))

    def _came(self, sent: Sent, reply: Reply[Produced]) -> None:
        self._in_flight -= 1
        offsets = reply.result().base_offsets if reply.error is None else None
        if offsets is None or not self._appended(sent, offsets):
            for entry in sent:
                entry.queue.owner.answered(entry.queue, entry, reply)
        self.pump()

    def _appended(self, sent: Sent, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Hand the batches of a response without errors to their owners.

        Return False if the response lacks one of them.
        """
        owners: dict[QueueListener, list[Entry]] = {}
        try:
            for entry in sent:
                queue = entry.queue
                entry.base_offset = offsets[queue.at.topic][queue.at.partition]
                owners.setdefault(queue.owner, []).append(entry)
        except KeyError:
            return False
        for owner, entries in owners.items():
            owner.appended(entries)
        return True

    def _connect(self) -> None:
        self._connection = None
        if not self._opening and not self._closed:
            self._opening = True
            opening = start(self._cluster.connection(self._node, self._purpose))
            opening.then(self._opened)

    def _opened(self, reply: Reply[Connection]) -> None:
        self._opening = False
        if isinstance(reply.error, HeadraceError):
            queues = list(self.turns)
            self.turns.clear()
            for queue in queues:
                queue.listed = False
                queue.owner.unreachable(queue, reply.error)
            return
        self._connection = reply.result()
        if self._closed:
            self._connection.close()
        else:
            self.pump()


class Leaders:
    """Leaders of one target. Their creator closes them, and ``cluster``."""

    def __init__(self, cluster: ClusterClient, transactional_id: str | None = None) -> None:
        """Create an empty set.

        ``transactional_id`` is the id of the only appender that may use it, if it appends in
        transactions: a request has one id.
        """
        self.cluster, self._transactional_id = cluster, transactional_id
        self._leaders: dict[int, Leader] = {}

    def of(self, node: int) -> Leader:
        """Return the leader on this broker."""
        if (leader := self._leaders.get(node)) is None:
            leader = self._leaders[node] = Leader(self.cluster, node, self._transactional_id)
        return leader

    def pump(self) -> None:
        """Send what may be sent, without waiting."""
        for leader in list(self._leaders.values()):
            leader.pump()

    def close(self) -> None:
        """End the connections: what is in flight fails."""
        for leader in self._leaders.values():
            leader.close()
