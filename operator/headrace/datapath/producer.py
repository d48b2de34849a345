"""Batches that wait for one partition of the target, numbered in order, and their brokers."""

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Protocol

from headrace.api import TopicPartition
from headrace.datapath.spans import Outgoing, Span
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    HEADER_BYTES,
    MAX_SEQUENCE,
    Buffer,
    ClusterClient,
    Connection,
    Produced,
    ProducerIdentity,
    Reply,
    produce_call,
    sequence_after,
    stamped,
    start,
)
from headrace.kafka.wire.scan import COLUMNS, PLACE, RECORDS, SIZE
from headrace.timing import Backoff

IN_FLIGHT = 5
"""Number of batches of a producer and partition that a broker remembers: it answers a repeated one
with its offset. At most this many are sent from the first unacknowledged one on.
"""

_DRAWN = 16
"""Batches of a span that become entries together. Five of them are on the wire."""


class State(Enum):
    """State of a batch."""

    QUEUED = auto()
    ON_WIRE = auto()
    """In flight until its response arrives or its connection ends."""
    APPENDED = auto()
    """Appended. It stays in the queue while an earlier batch is not."""


class Entry:
    """A batch that was taken from its queue, with its sequence. Its bytes do not change.

    A queue uses the entries of acknowledged batches again.
    """

    __slots__ = (
        "base_offset",
        "parts",
        "queue",
        "row",
        "sequence",
        "size",
        "source",
        "state",
        "tried",
    )

    def __init__(self, queue: "PartitionQueue") -> None:
        self.queue = queue
        self.source: Outgoing | Span
        """The batch, or the span that has it in ``row``."""
        self.row = 0
        self.parts: tuple[Buffer, memoryview]
        """Header and records, as they are sent."""
        self.sequence = self.size = 0
        self.state = State.QUEUED
        self.tried = False
        """Whether the batch was ever sent, so that the target may have it."""
        self.base_offset = -1

    @property
    def outgoing(self) -> Outgoing:
        """The batch by itself."""
        source = self.source
        return source.outgoing(self.row) if isinstance(source, Span) else source

    def release(self) -> None:
        """Release the memory of the batch."""
        if isinstance(self.source, Span):
            self.source.release_row()
        else:
            self.source.release()


class QueueListener(Protocol):
    """Owner of a queue, which receives the outcome of its batches."""

    def appended(self, entries: Sequence[Entry]) -> None:
        """Receive batches that the target has appended, each with its ``base_offset``."""
        ...

    def answered(self, queue: "PartitionQueue", entry: Entry, reply: Reply[Produced]) -> None:
        """Receive a response with errors, or the failure of the request with this batch."""
        ...

    def unreachable(self, queue: "PartitionQueue", error: HeadraceError) -> None:
        """Receive the error of a missing connection to the leader."""
        ...


class PartitionQueue:
    """From ``add`` to the acknowledgement. One thread calls it."""

    __slots__ = (
        "_row",
        "_sequence",
        "_waiting",
        "again",
        "at",
        "backoff",
        "damaged",
        "entries",
        "failed",
        "failures",
        "held",
        "known_s",
        "leader",
        "length",
        "listed",
        "on_wire",
        "owner",
        "place",
        "producer",
        "resting",
        "to_split",
        "turns",
        "unreadable",
        "unused",
    )

    def __init__(
        self,
        at: TopicPartition,
        owner: QueueListener,
        producer: ProducerIdentity,
        sequence: int = 0,
    ) -> None:
        """``sequence``: of the first batch."""
        self.at, self.owner, self.producer = at, owner, producer
        self.leader: int | None = None
        """Node id of the leader; None if it is unknown."""
        self.turns: deque[PartitionQueue] = deque()
        """Partitions that are sent to this leader, in turns."""
        self.listed = False
        """Whether it waits for its turn at its leader."""
        self.resting = False
        """Whether it waits before it is sent again."""
        self.again: HeadraceError | None = None
        """Reason why a batch must be sent again, once the others in flight have returned."""
        self.to_split = False
        """Whether the first batch is too large."""
        self.held = False
        """Whether nothing may be sent: it is not part of its producer's transaction."""
        self.failed = False
        self.failures = 0
        """Number of consecutive failures."""
        self.damaged = 0
        """Consecutive times that the first batch reached the target damaged."""
        self.unreadable = 0
        """Consecutive responses for the first batch that could not be read."""
        self.known_s: float | None = None
        """Time at which the target last appended a batch of this producer; None if it has none. It
        then accepts any sequence, including one after a batch that it rejected.
        """
        self.backoff = Backoff(0.05, 2.0)
        self.on_wire = 0
        self.entries: deque[Entry] = deque()
        """Batches from the first that is not acknowledged to the last that may be sent."""
        self.place = 0
        """Number of the next entry to consider, when one is to be sent."""
        self.length = 0
        """Batches that are not acknowledged."""
        self._waiting: deque[Outgoing | Span] = deque()
        self._row = 0  # of the first span that waits: the next row to become an entry
        self.unused: list[Entry] = []
        """Entries of acknowledged batches, for the next ones."""
        self._sequence = sequence

    def __len__(self) -> int:
        return self.length

    def add(self, source: Outgoing | Span) -> None:
        """Append a batch, or all batches of a span, after all others."""
        self._waiting.append(source)
        self.length += source.row_count if isinstance(source, Span) else 1

    def next(self) -> Entry | None:
        """Return the batch that may be sent now."""
        if self.resting or self.failed or self.held or (self.again is not None and self.on_wire):
            return None
        entries, place = self.entries, self.place
        while place < len(entries) and entries[place].state is not State.QUEUED:
            place += 1
        self.place = place
        if place >= (1 if self.known_s is None else IN_FLIGHT):
            return None
        if place < len(entries):
            return entries[place]
        if not self._waiting:
            return None
        source = self._waiting[0]
        if not isinstance(source, Span):
            return self._take(source)
        self._draw(source)
        return entries[place]

    def _draw(self, span: Span) -> None:
        """Make entries of the next rows, so that most batches take no call of ``next``."""
        first = self._row
        if not first:
            span.stamp(self.producer, self._sequence)
        end = min(first + _DRAWN, span.row_count)
        rows, data, headers, unused = span.rows, span.data, span.headers, self.unused
        for row in range(first, end):
            entry = unused.pop() if unused else Entry(self)
            at, header_at = row * COLUMNS, row * HEADER_BYTES
            begin, size = rows[at + PLACE], rows[at + SIZE]
            entry.source, entry.row, entry.sequence, entry.size = span, row, self._sequence, size
            entry.parts = (
                headers[header_at : header_at + HEADER_BYTES],
                data[begin + HEADER_BYTES : begin + size],
            )
            entry.state, entry.tried = State.QUEUED, False
            self._sequence = self._sequence + rows[at + RECORDS] & MAX_SEQUENCE
            self.entries.append(entry)
        if end < span.row_count:
            self._row = end
        else:
            self._row = 0
            self._waiting.popleft()

    def _take(self, outgoing: Outgoing) -> Entry:
        self._waiting.popleft()
        entry = self._entry(outgoing, self._sequence)
        self._sequence = sequence_after(self._sequence, outgoing.records)
        self.entries.append(entry)
        return entry

    def _entry(self, outgoing: Outgoing, sequence: int) -> Entry:
        entry = Entry(self)
        batch = outgoing.batch
        entry.source, entry.sequence, entry.size = outgoing, sequence, len(batch.data)
        entry.parts = stamped(batch, self.producer, sequence)
        return entry

    def came_back(self, entry: Entry, why: HeadraceError) -> None:
        """Queue a batch again, unchanged, before the batches after it."""
        entry.state = State.QUEUED
        self.on_wire -= 1
        if self.again is None:
            self.again = why
        self.place = 0

    def is_first(self, entry: Entry) -> bool:
        """Whether all earlier batches are acknowledged."""
        return bool(self.entries) and self.entries[0] is entry

    def replace(self, parts: Sequence[Outgoing]) -> None:
        """Replace the first batch, which the target does not have, by ``parts``.

        They have its records, so the sequences of later batches stay.
        """
        whole = self.entries.popleft()
        sequence = whole.sequence
        entries = []
        for part in parts:
            entries.append(self._entry(part, sequence))
            sequence = sequence_after(sequence, part.records)
        self.entries.extendleft(reversed(entries))
        self.length += len(parts) - 1
        self.place, self.again = 0, None

    def drop_untried(self) -> None:
        """Drop and release all batches that were never sent.

        A batch that is added next follows the remaining ones.
        """
        while self.entries and not self.entries[-1].tried:
            entry = self.entries.pop()
            self._sequence = entry.sequence
            self.length -= 1
            entry.release()
        self.place = min(self.place, len(self.entries))
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        waiting, row = self._waiting, self._row
        self._waiting, self._row = deque(), 0
        for source in waiting:
            if isinstance(source, Span):
                count = source.row_count - row
                row = 0
                source.release(count)
                self.length -= count
            else:
                source.release()
                self.length -= 1

    def fail(self) -> None:
        """Drop all batches, and release those that are not in flight."""
        self.failed = True
        entries, self.entries = self.entries, deque()
        self.place = 0
        self.length -= len(entries)
        for entry in entries:
            if entry.state is not State.ON_WIRE:
                entry.release()
        self._drop_waiting()


# The brokers of the target: a connection to each, and whose turn it is there.
#
# Several appenders may share them: a request costs as much as copying some 50 KB, so that it should
# have a batch of each partition that has one, whichever task copies it.

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
        """End the connection. Batches in flight fail."""
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
        """End the connections. Batches in flight fail."""
        for leader in self._leaders.values():
            leader.close()
