"""Batches to append to one partition of the target, in order. Pure: it sends nothing."""

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    HEADER_BYTES,
    MAX_SEQUENCE,
    Buffer,
    Produced,
    ProducerIdentity,
    Reply,
    sequence_after,
    stamped,
)
from headrace.kafka.wire.scan import COLUMNS, PLACE, RECORDS, SIZE
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.batch.span import Span
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
    """Until its response, or the end of its connection."""
    APPENDED = auto()
    """One before it is not."""


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
        """Whether it was ever sent: the target may have it."""
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
        """There is no connection to its leader."""
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
        """Node that it is sent to; ``None``: not known."""
        self.turns: deque[PartitionQueue] = deque()
        """Partitions that are sent to this leader, in turns."""
        self.listed = False
        """Whether it waits for its turn at its leader."""
        self.resting = False
        """Whether it waits before it is sent again."""
        self.again: HeadraceError | None = None
        """Reason why a batch must be sent again, once the others in flight have returned."""
        self.to_split = False
        """Whether the first one is too large."""
        self.held = False
        """Whether nothing may be sent: it is not part of its producer's transaction."""
        self.failed = False
        self.failures = 0
        """Number of consecutive failures."""
        self.damaged = 0
        """How often in a row the first one came to the target damaged."""
        self.unreadable = 0
        """How many answers for the first one could not be read, in a row."""
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
        """Whether all before it are acknowledged."""
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
        """Drop all, and release those that are not on the wire."""
        self.failed = True
        entries, self.entries = self.entries, deque()
        self.place = 0
        self.length -= len(entries)
        for entry in entries:
            if entry.state is not State.ON_WIRE:
                entry.release()
        self._drop_waiting()
