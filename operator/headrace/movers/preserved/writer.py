"""Writes what is planned: data by compare-and-append, holes by markers, each in its place."""

from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import ProducerIdentity
from headrace.movers.batch.appender import Appender
from headrace.movers.batch.leader import Leaders
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.preserved.ends import End, copies_lost
from headrace.movers.preserved.holes import Holes
from headrace.movers.preserved.owner import Closer, TaskProducers
from headrace.movers.preserved.plan import Append, Operation
from headrace.movers.preserved.wrong_offset import appended_elsewhere

_NOBODY = ProducerIdentity(-1, -1)
"""Each partition begins with an identity of its own."""


class FirstBatch(Protocol):
    """Whether the first batch after a take-over is on the target as it was sent.

    An earlier owner may have sent one with as many records, from what the source held before it was
    compacted; which comes late, and ours is taken for its repetition.
    """

    def __call__(
        self,
        at: TopicPartition,
        outgoing: Outgoing,
        done: Callable[[HeadraceError | None], None],
    ) -> None:
        """Handle a first batch, whose memory is free afterwards; ``done`` is called once."""
        ...


class WrittenCallback(Protocol):
    """Called in order, for each partition of the target."""

    def __call__(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        """All below ``next_offset`` is as on the source; ``None``: it was a hole."""
        ...


@dataclass
class _Partition:
    next: int
    """All below is acknowledged."""
    given: int
    """All below is given to the appender."""
    waiting: deque[Operation] = field(default_factory=deque)
    """The first waits for what is before it: a hole for all, data for the first batch."""
    closer: Closer | None = None
    """Closer that writes the first marker."""
    filling: bool = False
    """The first of them is a hole that is being filled."""
    checked: bool = True
    """Whether the first batch is known to be as it was sent."""
    unchecked: deque[Outgoing] = field(default_factory=deque)
    """The first batch and later ones that were appended; ``first`` decides whether they count as
    written.
    """


class Writer:
    """Writer of one owner, used in the thread of the target's loop.

    A partition fails at most once, and is not written afterwards: its lane takes it over again, or
    a user must act.
    """

    def __init__(
        self,
        leaders: Leaders,
        owner: TaskProducers,
        written: WrittenCallback,
        failed: Callable[[TopicPartition, HeadraceError], None],
        *,
        first: FirstBatch | None = None,
        waiting: Callable[[str], None] = lambda _: None,
        with_records: bool = False,
    ) -> None:
        """``with_records``: see ``Holes``."""
        self._cluster = leaders.cluster
        self._written, self._failed, self._first = written, failed, first
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._holes = Holes(leaders.cluster, owner, self._filled, with_records=with_records)
        self._appender = Appender(
            leaders.cluster.loop,
            leaders,
            _NOBODY,
            self._appended,
            self._fail,
            waiting=waiting,
            led_again=self._led_again,
        )

    def begin(self, at: TopicPartition, end: End, closer: Closer | None = None) -> None:
        """Write the partition from ``end`` on."""
        if closer is not None:
            # Its epoch was raised again: that of others before has no effect.
            for one in self._partitions.values():
                if one.closer and one.closer.transactional_id == closer.transactional_id:
                    one.closer = closer
            if closer.identity.epoch == end.identity.epoch:
                closer = None  # see ``Closer``
        self._partitions[at] = _Partition(
            end.offset, end.offset, closer=closer, checked=self._first is None
        )
        self._appender.begin(at, end.identity, end.sequence)

    def write(self, at: TopicPartition, operation: Operation) -> None:
        """Queue an operation that follows the previous ones without a gap; ``flush`` sends it."""
        one = self._partitions.get(at)
        if one is None:
            if isinstance(operation, Append):
                operation.outgoing.release()
            return
        one.waiting.append(operation)
        self._go_on(at, one)

    def forget(self, at: TopicPartition) -> None:
        """Stop writing a partition that has nothing pending."""
        if (one := self._partitions.pop(at, None)) is not None:
            _release(one)

    def leave(self, at: TopicPartition) -> list[Operation]:
        """Drop waiting operations and return them in order; later ones follow the others."""
        one = self._partitions.get(at)
        return [] if one is None else _release(one)

    def waits(self, at: TopicPartition) -> int:
        """How many operations wait for others before them."""
        one = self._partitions.get(at)
        return 0 if one is None else len(one.waiting)

    def flush(self) -> None:
        """Send what may be sent."""
        self._appender.flush()

    @property
    def pending(self) -> int:
        """Operations that are not acknowledged."""
        waiting = (len(one.waiting) + len(one.unchecked) for one in self._partitions.values())
        return self._appender.pending + sum(waiting)

    def drop_unsent(self) -> None:
        """Drop operations that are neither sent nor in progress."""
        self._holes.stop()
        for one in self._partitions.values():
            _release(one)
        self._appender.drop_unsent()

    def close(self) -> None:
        """Drop all: what is in flight may be written, or not."""
        self._holes.close()
        self._appender.close()
        for one in self._partitions.values():
            _release(one)
        self._partitions.clear()

    async def _led_again(
        self, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, HeadraceError]:
        known = {at: self._partitions[at].next for at in partitions & self._partitions.keys()}
        return await copies_lost(self._cluster, known)

    def _give(self, at: TopicPartition, one: _Partition, append: Append) -> None:
        one.given = append.next
        self._appender.append(at, append.outgoing)

    def _go_on(self, at: TopicPartition, one: _Partition) -> None:
        while one.waiting and not one.filling:
            first = one.waiting[0]
            ready = one.next == one.given
            if isinstance(first, Append):
                if not (ready or one.checked):
                    return
                one.waiting.popleft()
                self._give(at, one, first)
            elif ready:
                one.filling = True
                self._holes.fill(at, first, one.closer)
            else:
                return

    def _appended(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        if (one := self._partitions.get(at)) is None:
            return
        offset = outgoing.first_offset
        if base_offset != offset:
            self._fail(at, appended_elsewhere(at, self._cluster.name, offset, base_offset))
            return
        if one.checked:
            self._acknowledge(at, one, outgoing)
            return
        data = memoryview(bytes(outgoing.batch.data))
        one.unchecked.append(outgoing._replace(batch=outgoing.batch._replace(data=data)))
        if len(one.unchecked) == 1:
            assert self._first is not None
            self._first(at, one.unchecked[0], partial(self._check, at, one))

    def _check(self, at: TopicPartition, one: _Partition, error: HeadraceError | None) -> None:
        if self._partitions.get(at) is not one:
            return
        if error is not None:
            self._fail(at, error)
            return
        one.checked = True
        while one.unchecked:
            self._acknowledge(at, one, one.unchecked.popleft())
        self.flush()

    def _acknowledge(self, at: TopicPartition, one: _Partition, outgoing: Outgoing) -> None:
        one.next = outgoing.first_offset + outgoing.records
        self._written(at, one.next, outgoing)
        self._go_on(at, one)

    def _filled(self, at: TopicPartition, error: HeadraceError | None) -> None:
        if (one := self._partitions.get(at)) is None or not one.filling:
            return
        if error is not None:
            self._fail(at, error)
            return
        if one.closer is not None:
            self._appender.begin(at, one.closer.identity)
            one.closer = None
        hole = one.waiting.popleft()
        one.filling, one.next, one.given = False, hole.next, hole.next
        self._written(at, one.next, None)
        self._go_on(at, one)
        self.flush()

    def _fail(self, at: TopicPartition, error: HeadraceError) -> None:
        if (one := self._partitions.pop(at, None)) is not None:
            _release(one)
            self._failed(at, error)


def _release(one: _Partition) -> list[Operation]:
    """Drop all that waits, but for a hole that is being filled."""
    waiting = list(one.waiting)
    kept = waiting[: int(one.filling)]
    dropped = waiting[len(kept) :]
    for operation in dropped:
        if isinstance(operation, Append):
            operation.outgoing.release()
    one.waiting = deque(kept)
    return dropped
