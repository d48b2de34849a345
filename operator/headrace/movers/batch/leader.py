"""The brokers of the target: a connection to each, and whose turn it is there.

Several appenders may share them: a request costs as much as copying some 50 KB, so that it should
have a batch of each partition that has one, whichever task copies it.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    Cluster,
    Connection,
    Produced,
    Reply,
    Stamped,
    produce_call,
    start,
)
from headrace.movers.batch.queue import IN_FLIGHT, Entry, PartitionQueue

_REQUEST_BYTES = 4 << 20
"""Of a request with several batches; one batch may be larger."""
_TIMEOUT_MS = 20_000
"""For the target's replicas; its answer then comes before we give the connection up."""
_ANSWER_WITHIN_S = 30.0

_PURPOSE = "append"

Sent = Sequence[tuple[PartitionQueue, Entry]]
"""What is in one request: at most one batch of each partition."""


class Leader:
    """Sends what its partitions have, each one batch at a time, in turns."""

    def __init__(self, cluster: Cluster, node: int, transactional_id: str | None) -> None:
        self._cluster, self._node = cluster, node
        self._transactional_id = transactional_id
        self._purpose = f"{_PURPOSE} {transactional_id}" if transactional_id else _PURPOSE
        self._turns: deque[PartitionQueue] = deque()
        self._connection: Connection | None = None
        self._opening = self._closed = False
        self._in_flight = 0

    def enlist(self, queue: PartitionQueue) -> None:
        """It has something to send."""
        if not queue.listed:
            queue.listed = True
            self._turns.append(queue)

    def pump(self) -> None:
        """Send what may be sent, without waiting."""
        while self._turns and self._in_flight < IN_FLIGHT:
            if (connection := self._connected()) is None or not (sent := self._next()):
                return
            self._send(connection, sent)

    def close(self) -> None:
        """End the connection: what is in flight fails."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> Sent:
        sent: list[tuple[PartitionQueue, Entry]] = []
        ats: set[TopicPartition] = set()
        size = 0
        for _ in range(len(self._turns)):
            queue = self._turns[0]
            entry = queue.next()
            if entry is None:
                self._turns.popleft().listed = False
                continue
            if sent and size + entry.size > _REQUEST_BYTES:
                break
            if queue.at not in ats:  # an earlier lane may still have some of this partition
                queue.sent(entry)
                size += entry.size
                ats.add(queue.at)
                sent.append((queue, entry))
            self._turns.rotate(-1)
        return sent

    def _send(self, connection: Connection, sent: Sent) -> None:
        batches: dict[str, dict[int, Stamped]] = {}
        for queue, entry in sent:
            batches.setdefault(queue.at.topic, {})[queue.at.partition] = entry.stamped
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
        for queue, entry in sent:
            queue.owner.answered(queue, entry, reply)
        self.pump()

    def _connected(self) -> Connection | None:
        if self._connection is None or self._connection.closed_by is not None:
            self._connection = None
            if not self._opening and not self._closed:
                self._opening = True
                opening = start(self._cluster.connection(self._node, self._purpose))
                opening.then(self._opened)
        return self._connection

    def _opened(self, reply: Reply[Connection]) -> None:
        self._opening = False
        if isinstance(reply.error, HeadraceError):
            queues, self._turns = self._turns, deque()
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
    """Of one target. Whoever makes them closes them, and ``cluster``."""

    def __init__(self, cluster: Cluster, transactional_id: str | None = None) -> None:
        """``transactional_id``: of the one appender that may have them, if it is in transactions: a
        request has one."""
        self.cluster, self._transactional_id = cluster, transactional_id
        self._leaders: dict[int, Leader] = {}

    def of(self, node: int) -> Leader:
        """The one of this broker."""
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
