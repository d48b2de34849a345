"""What is to be appended to one partition of the target, in order. Pure: it sends nothing."""

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Protocol

from headrace.api import TopicPartition
from headrace.backoff import Backoff
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    Produced,
    ProducerIdentity,
    Reply,
    Stamped,
    sequence_after,
    stamped,
)
from headrace.movers.batch.outgoing import Outgoing

IN_FLIGHT = 5
"""So many batches of a producer and partition a broker remembers: it answers one that comes again
with its offset. From the first that is not acknowledged on, no more are sent."""


class State(Enum):
    """Of a batch."""

    QUEUED = auto()
    ON_WIRE = auto()
    """Until its response, or the end of its connection."""
    APPENDED = auto()
    """One before it is not."""


class Entry:
    """A batch with its sequence; its bytes do not change."""

    __slots__ = ("base_offset", "outgoing", "sequence", "size", "stamped", "state", "tried")

    def __init__(self, outgoing: Outgoing, producer: ProducerIdentity, sequence: int) -> None:
        batch = outgoing.batch
        self.outgoing, self.sequence = outgoing, sequence
        self.stamped: Stamped = stamped(batch, producer, sequence)
        self.size = len(batch.data)
        self.state = State.QUEUED
        self.tried = False
        """Whether it was ever sent: the target may have it."""
        self.base_offset = -1


class Owner(Protocol):
    """Who has a queue, and receives what becomes of it."""

    def answered(self, queue: "PartitionQueue", entry: Entry, reply: Reply[Produced]) -> None:
        """The request with this batch has its response, or has failed."""
        ...

    def unreachable(self, queue: "PartitionQueue", error: HeadraceError) -> None:
        """There is no connection to its leader."""
        ...


class PartitionQueue:
    """From ``add`` to the acknowledgement. One thread calls it."""

    __slots__ = (
        "_entries",
        "_next",
        "_sequence",
        "again",
        "at",
        "backoff",
        "damaged",
        "failed",
        "failures",
        "held",
        "known_s",
        "leader",
        "listed",
        "on_wire",
        "owner",
        "resting",
        "to_split",
        "unreadable",
    )

    def __init__(self, at: TopicPartition, owner: Owner, sequence: int = 0) -> None:
        """``sequence``: of the first batch."""
        self.at, self.owner = at, owner
        self.leader: int | None = None
        """Node that it is sent to; ``None``: not known."""
        self.listed = False
        """Whether it waits for its turn among those of its leader."""
        self.resting = False
        """Whether it waits before it is sent again."""
        self.again: HeadraceError | None = None
        """Why one has to be sent again: first, the others on the wire come back."""
        self.to_split = False
        """Whether the first one is too large."""
        self.held = False
        """Whether nothing may be sent: it is not part of its producer's transaction."""
        self.failed = False
        self.failures = 0
        """In a row."""
        self.damaged = 0
        """How often in a row the first one came to the target damaged."""
        self.unreadable = 0
        """How many answers for the first one could not be read, in a row."""
        self.known_s: float | None = None
        """When the target last appended something of this producer; ``None``: it knows none. Then
        it takes any sequence, also that of a batch behind one that it refused."""
        self.backoff = Backoff(0.05, 2.0)
        self.on_wire = 0
        self._entries: deque[Entry] = deque()
        self._next = 0  # place of the next entry to consider, when one is to be sent
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, outgoing: Outgoing, producer: ProducerIdentity) -> None:
        """Append it after all others."""
        entry = Entry(outgoing, producer, self._sequence)
        self._sequence = sequence_after(self._sequence, outgoing.batch.record_count)
        self._entries.append(entry)

    def next(self) -> Entry | None:
        """What may be sent now."""
        if self.resting or self.failed or self.held or (self.again is not None and self.on_wire):
            return None
        entries, place = self._entries, self._next
        most = min(len(entries), 1 if self.known_s is None else IN_FLIGHT)
        while place < most and entries[place].state is not State.QUEUED:
            place += 1
        self._next = place
        return entries[place] if place < most else None

    def sent(self, entry: Entry) -> None:
        """It is on the wire: the one that ``next`` gave."""
        entry.state, entry.tried = State.ON_WIRE, True
        self._next += 1
        self.on_wire += 1
        self.again = None

    def appended(self, entry: Entry, base_offset: int, now_s: float) -> Iterator[Entry]:
        """The target has it: those that are acknowledged now, which are forgotten."""
        entry.state, entry.base_offset, self.known_s = State.APPENDED, base_offset, now_s
        self.on_wire -= 1
        self.unreadable = 0
        if self.failures:
            self.failures = self.damaged = 0
            self.backoff.reset()
        entries = self._entries
        while entries and entries[0].state is State.APPENDED:
            first = entries.popleft()
            self._next = max(0, self._next - 1)
            yield first

    def came_back(self, entry: Entry, why: HeadraceError) -> None:
        """It has to be sent again, as it is, before those after it."""
        entry.state = State.QUEUED
        self.on_wire -= 1
        if self.again is None:
            self.again = why
        self._next = 0

    def is_first(self, entry: Entry) -> bool:
        """Whether all before it are acknowledged."""
        return bool(self._entries) and self._entries[0] is entry

    def replace(self, parts: Sequence[Outgoing], producer: ProducerIdentity) -> None:
        """Put ``parts`` in place of the first one, which the target has not: they have its records,
        so that the sequences of those after them stay."""
        whole = self._entries.popleft()
        sequence = whole.sequence
        entries = []
        for part in parts:
            entries.append(Entry(part, producer, sequence))
            sequence = sequence_after(sequence, part.records)
        self._entries.extendleft(reversed(entries))
        self._next, self.again = 0, None

    def drop_untried(self) -> list[Outgoing]:
        """Drop all that were never sent; what is added next follows what was."""
        dropped: list[Outgoing] = []
        while self._entries and not self._entries[-1].tried:
            entry = self._entries.pop()
            self._sequence = entry.sequence
            dropped.append(entry.outgoing)
        self._next = min(self._next, len(self._entries))
        return dropped

    def fail(self) -> list[Outgoing]:
        """Drop all; those that are not on the wire are given back."""
        self.failed = True
        dropped = [one.outgoing for one in self._entries if one.state is not State.ON_WIRE]
        self._entries.clear()
        self._next = 0
        return dropped
