"""Queue of a target partition's batches, and the connections to the partition leaders."""

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
"""Number of batches for each producer and partition that a broker remembers. It answers a repeated
batch with the original offset. Therefore at most this many batches are in flight, counted from the
first unacknowledged one."""

_DRAWN = 16
"""Number of rows of a span that are turned into entries at a time. At most five batches of a
partition are in flight."""


class State(Enum):
    """Sending state of a batch."""

    QUEUED = auto()
    ON_WIRE = auto()
    """In flight until its response arrives or its connection ends."""
    APPENDED = auto()
    """Appended. It stays in the queue until all earlier batches are appended."""


class Entry:
    """Batch with its sequence number. Its bytes do not change.

    A queue uses the entries of acknowledged batches again.
    """

    __slots__ = (
        "base_offset",
        "parts",
        "queue",
        "records",
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
        """The batch, or the span that contains it as ``row``."""
        self.row = 0
        self.parts: tuple[Buffer, memoryview]
        """Header and records as they are sent."""
        self.sequence = self.size = self.records = 0
        self.state = State.QUEUED
        self.tried = False
        """Whether the batch was ever sent, so that the target may have it."""
        self.base_offset = -1

    @property
    def outgoing(self) -> Outgoing:
        """Return the batch as an object of its own."""
        source = self.source
        return source.outgoing(self.row) if isinstance(source, Span) else source

    def release(self) -> None:
        if isinstance(self.source, Span):
            self.source.release_row()
        else:
            self.source.release()


class QueueListener(Protocol):
    """Receiver of the outcome of a queue's batches."""

    def appended(self, entries: Sequence[Entry]) -> None:
        """Receive batches that the target has appended, each with its ``base_offset``."""
        ...

    def answered(self, queue: "PartitionQueue", entry: Entry, reply: Reply[Produced]) -> None:
        """Receive a response that contains errors, or the failure of the request, for a batch."""
        ...

    def unreachable(self, queue: "PartitionQueue", error: HeadraceError) -> None:
        """Receive the error of a failed connection to the leader."""
        ...


class PartitionQueue:
    """Batches of one target partition, until they are acknowledged. Not thread-safe."""

    __slots__ = (
        "_row",
        "_sequence",
        "_waiting",
        "again",
        "at",
        "backoff",
        "damaged",
        "doubted",
        "end",
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
        """Create an empty queue. ``sequence`` is the first batch's sequence number."""
        self.at, self.owner, self.producer = at, owner, producer
        self.leader: int | None = None
        """Node id of the leader; None if it is unknown."""
        self.turns: deque[PartitionQueue] = deque()
        """The leader's ``Leader.turns``."""
        self.listed = False
        """Whether the queue is in ``turns``."""
        self.resting = False
        """Whether the queue waits after a failure before it sends again."""
        self.again: HeadraceError | None = None
        """Error that requires a batch to be sent again, once no batch is in flight."""
        self.to_split = False
        """Whether the target rejected the first batch as too large."""
        self.held = False
        """Whether nothing may be sent because the partition is not part of the transaction."""
        self.failed = False
        self.failures = 0
        """Number of consecutive failures."""
        self.damaged = 0
        """Number of consecutive times that the first batch arrived damaged at the target."""
        self.unreadable = 0
        """Number of consecutive unreadable responses for the first batch."""
        self.end: int | None = None
        """Target offset after the last acknowledged batch, where the next one is expected; None if
        the offsets of batches are not checked."""
        self.doubted: int | None = None
        """Unexpected offset of the first batch, which is sent again for a second answer."""
        self.known_s: float | None = None
        """Time of the producer's last append to the partition; None if the target may not remember
        the producer. The target then accepts any sequence, so only one batch is sent at a time."""
        self.backoff = Backoff(0.05, 2.0)
        self.on_wire = 0
        self.entries: deque[Entry] = deque()
        """Batches from the first unacknowledged one to the last one that was prepared for
        sending."""
        self.place = 0
        """Index in ``entries`` from which the next batch to send is searched."""
        self.length = 0
        """Number of batches that are not acknowledged."""
        self._waiting: deque[Outgoing | Span] = deque()
        self._row = 0  # next row of the first waiting span to become an entry
        self.unused: list[Entry] = []
        """Entries of acknowledged batches, to be used again."""
        self._sequence = sequence

    def __len__(self) -> int:
        return self.length

    def add(self, source: Outgoing | Span) -> None:
        """Append a batch, or all batches of a span, to the end of the queue."""
        self._waiting.append(source)
        self.length += source.row_count if isinstance(source, Span) else 1

    def next(self) -> Entry | None:
        """Return the batch to send now, or None."""
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
        """Create entries of the next rows, so that most batches need no call of ``next``."""
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
            entry.records = count = rows[at + RECORDS]
            self._sequence = self._sequence + count & MAX_SEQUENCE
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
        entry.records = outgoing.records
        entry.parts = stamped(batch, self.producer, sequence)
        return entry

    def came_back(self, entry: Entry, why: HeadraceError) -> None:
        """Queue an unacknowledged batch again, unchanged."""
        entry.state = State.QUEUED
        self.on_wire -= 1
        if self.again is None:
            self.again = why
        self.place = 0

    def is_believed(self, entry: Entry) -> bool:
        """Return whether the offset in the response for the first batch is believed.

        No checksum covers the offset. An unexpected offset is believed if a second response also
        contains it. Otherwise the batch is sent again: a broker answers a repetition with the
        offset at which it appended the batch.
        """
        if entry.base_offset in (self.end, self.doubted):
            self.doubted = None
            return True
        self.doubted = entry.base_offset
        entry.state, self.place = State.QUEUED, 0
        return False

    def is_first(self, entry: Entry) -> bool:
        """Return whether all earlier batches are acknowledged."""
        return bool(self.entries) and self.entries[0] is entry

    def replace(self, parts: Sequence[Outgoing]) -> None:
        """Replace the first batch, which the target does not have, with ``parts``.

        The parts contain the same records, so the sequences of later batches stay valid.
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

        The next added batch follows the last one that was sent.
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


# Connections to the brokers of the target. Several appenders may share a connection: a request
# costs as much as copying about 50 KB, so it should contain a batch of each partition that has one,
# whichever task copies the partition.

_REQUEST_BYTES = 4 << 20
"""Maximum size in bytes of a request with several batches; one batch may be larger."""
_TIMEOUT_MS = 20_000
"""Time limit in ms for the replicas to acknowledge a batch. It is shorter than
``_ANSWER_TIMEOUT_S``, so that the broker answers before the connection is closed."""
_ANSWER_TIMEOUT_S = 30.0

_PURPOSE = "append"

Sent = Sequence[Entry]
"""Batches of one request: at most one of each partition."""


class Leader:
    """Connection to one broker. It sends one batch at a time of each partition, in turns."""

    def __init__(self, cluster: ClusterClient, node: int, transactional_id: str | None) -> None:
        self._cluster, self._node = cluster, node
        self._transactional_id = transactional_id
        self._purpose = f"{_PURPOSE} {transactional_id}" if transactional_id else _PURPOSE
        self.turns: deque[PartitionQueue] = deque()
        """Queues that may have something to send."""
        self._connection: Connection | None = None
        self._opening = self._closed = False
        self._in_flight = 0

    def enlist(self, queue: PartitionQueue) -> None:
        """Add a queue that has data to send."""
        if not queue.listed:
            queue.listed = True
            self.turns.append(queue)

    def pump(self) -> None:
        """Send queued batches without waiting."""
        while self.turns and self._in_flight < IN_FLIGHT:
            connection = self._connection
            if connection is None or connection.closed_by is not None:
                self._connect()
                return
            if not (sent := self._next()):
                return
            self._send(connection, sent)

    def close(self) -> None:
        """Close the connection. Batches in flight fail."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> Sent:
        """Return at most one batch of each partition, in turns. This is a hot path."""
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
                entry = entries[place]  # the result of ``next``, without a call
            else:
                entry = queue.next()
            if entry is None:
                turns.popleft().listed = False
                continue
            if sent and size + entry.size > _REQUEST_BYTES:
                break
            if queue.at not in ats:  # an earlier lane's queue may have the same partition
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
        reply = connection.send(call, timeout_s=_ANSWER_TIMEOUT_S)
        reply.then(partial(self._came, sent))

    def _came(self, sent: Sent, reply: Reply[Produced]) -> None:
        self._in_flight -= 1
        offsets = reply.result().base_offsets if reply.error is None else None
        if offsets is None or not self._appended(sent, offsets):
            for entry in sent:
                entry.queue.owner.answered(entry.queue, entry, reply)
        self.pump()

    def _appended(self, sent: Sent, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Report the batches of a response without errors to their queues' owners.

        Return False if the response lacks a batch.
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
    """Brokers of one target that lead partitions. The creator closes the object and ``cluster``."""

    def __init__(self, cluster: ClusterClient, transactional_id: str | None = None) -> None:
        """Create the object without connections.

        ``transactional_id`` is the transactional id of all requests, because a request has only
        one. Only one appender may then use the object.
        """
        self.cluster, self._transactional_id = cluster, transactional_id
        self._leaders: dict[int, Leader] = {}

    def of(self, node: int) -> Leader:
        """Return the connection to a broker."""
        if (leader := self._leaders.get(node)) is None:
            leader = self._leaders[node] = Leader(self.cluster, node, self._transactional_id)
        return leader

    def pump(self) -> None:
        """Send queued batches without waiting."""
        for leader in list(self._leaders.values()):
            leader.pump()

    def close(self) -> None:
        """Close the connections. Batches in flight fail."""
        for leader in self._leaders.values():
            leader.close()
