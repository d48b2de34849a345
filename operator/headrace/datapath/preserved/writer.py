"""Writer of planned batches and holes at their offsets."""

from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from headrace.api import TopicPartition
from headrace.datapath.append import Appender
from headrace.datapath.preserved.holes import Holes, appended_elsewhere
from headrace.datapath.preserved.owner import (
    Closer,
    End,
    TaskProducers,
    copies_lost,
    first_sequence,
)
from headrace.datapath.preserved.plan import Append, Operation
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Damaged, Outgoing
from headrace.errors import HeadraceError
from headrace.kafka.wire import ProducerIdentity

_NOBODY = ProducerIdentity(-1, -1)
"""Unused identity: ``begin`` sets an identity for each partition."""


class FirstBatch(Protocol):
    """Check that the target stores the first batch after a takeover as it was sent.

    An earlier owner may have sent a different batch with as many records, from the source's log
    before it was compacted. If that batch is appended first, the broker takes this owner's batch
    for a repetition.
    """

    def __call__(
        self,
        at: TopicPartition,
        outgoing: Outgoing,
        done: Callable[[HeadraceError | None], None],
    ) -> None:
        """Check a first batch. Call ``done`` once, with an error or None.

        The memory of ``outgoing`` may be released afterwards.
        """
        ...


class WrittenCallback(Protocol):
    """Receiver of written offsets, in order for each partition of the target."""

    def __call__(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        """Receive that all offsets below ``next_offset`` are written.

        ``outgoing`` is the written batch, or None for a hole.
        """
        ...


@dataclass
class _Partition:
    next: int
    """Offset below which everything is acknowledged."""
    given: int
    """Offset below which everything was given to the appender."""
    waiting: deque[Operation] = field(default_factory=deque)
    """Operations that wait. A hole waits for all earlier operations. Data wait for earlier holes,
    and until the first batch is checked."""
    closer: Closer | None = None
    """Closer that writes the first marker; None if that is done or not needed."""
    unknown: ProducerIdentity | None = None
    """Identity for data if the leader does not know the producer; None after the first data or the
    closer's marker."""
    filling: bool = False
    """Whether the first waiting operation is a hole that is being filled."""
    checked: bool = True
    """Whether the first batch is confirmed to be stored as it was sent."""
    unchecked: deque[Outgoing] = field(default_factory=deque)
    """Appended batches, from the first one on, that count as written only after the check of the
    first one."""


class Writer:
    """Writes the partitions of one owner. Call it in the thread of the target's loop.

    A partition fails at most once, and is not written afterwards. Its lane must take it over again,
    or a user must act.
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
        damaged: Damaged = lambda _, __: None,
        with_records: bool = False,
    ) -> None:
        """Create a writer without partitions.

        Args:
            leaders: Leaders of the target.
            owner: Producers of the task.
            written: Receives written offsets.
            failed: Receives failed partitions.
            first: Check of each partition's first batch; None for no check.
            waiting: Receives messages about operations that are retried.
            damaged: Receives damaged responses of the target.
            with_records: Whether long holes are filled with empty records, as in ``Holes``.
        """
        self._cluster = leaders.cluster
        self._written, self._failed, self._first = written, failed, first
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._holes = Holes(
            leaders.cluster, owner, self._filled, damaged=damaged, with_records=with_records
        )
        self._appender = Appender(
            leaders.cluster.loop,
            leaders,
            _NOBODY,
            self._appended,
            self._fail,
            waiting=waiting,
            damaged=damaged,
            led_again=self._led_again,
        )

    def begin(self, at: TopicPartition, end: End, closer: Closer | None = None) -> None:
        """Write a partition from ``end`` on. ``closer`` writes its first marker."""
        if closer is not None:
            # The epoch was raised again, so the closers of other partitions need the new one.
            for one in self._partitions.values():
                if one.closer and one.closer.transactional_id == closer.transactional_id:
                    one.closer = closer
            if closer.identity.epoch == end.identity.epoch:
                closer = None  # the partition is fenced already
        self._partitions[at] = _Partition(
            end.offset,
            end.offset,
            closer=closer,
            unknown=None if end.known else end.identity,
            checked=self._first is None,
        )
        self._appender.begin(at, end.identity, end.sequence)
        self._appender.expect(at, end.offset)

    def write(self, at: TopicPartition, operation: Operation) -> None:
        """Queue an operation that follows the previous one without a hole. ``flush`` sends it."""
        one = self._partitions.get(at)
        if one is None:
            if isinstance(operation, Append):
                operation.outgoing.release()
            return
        one.waiting.append(operation)
        self._go_on(at, one)

    def forget(self, at: TopicPartition) -> None:
        if (one := self._partitions.pop(at, None)) is not None:
            _release(one)

    def leave(self, at: TopicPartition) -> list[Operation]:
        """Drop and return waiting operations. Other operations are continued."""
        one = self._partitions.get(at)
        return [] if one is None else _release(one)

    def waits(self, at: TopicPartition) -> int:
        """Return the number of operations that wait for earlier ones."""
        one = self._partitions.get(at)
        return 0 if one is None else len(one.waiting)

    def flush(self) -> None:
        """Send queued batches without waiting."""
        self._appender.flush()

    @property
    def pending(self) -> int:
        """Number of operations that are not acknowledged."""
        waiting = (len(one.waiting) + len(one.unchecked) for one in self._partitions.values())
        return self._appender.pending + sum(waiting)

    def drop_unsent(self) -> None:
        """Drop operations that are neither sent nor in progress."""
        self._holes.stop()
        for one in self._partitions.values():
            _release(one)
        self._appender.drop_unsent()

    def close(self) -> None:
        """Drop all operations. The outcome of operations in flight remains unknown."""
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
        one.given, one.unknown = append.next, None
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
        hole = one.waiting.popleft()
        if one.closer is not None:
            self._appender.begin(at, one.closer.identity)
            one.closer = one.unknown = None
        elif one.unknown is not None:
            self._appender.begin(at, one.unknown, first_sequence(hole.next))
        self._appender.expect(at, hole.next)
        one.filling, one.next, one.given = False, hole.next, hole.next
        self._written(at, one.next, None)
        self._go_on(at, one)
        self.flush()

    def _fail(self, at: TopicPartition, error: HeadraceError) -> None:
        if (one := self._partitions.pop(at, None)) is not None:
            _release(one)
            self._failed(at, error)


def _release(one: _Partition) -> list[Operation]:
    """Drop and return all waiting operations, except a hole that is being filled."""
    waiting = list(one.waiting)
    kept = waiting[: int(one.filling)]
    dropped = waiting[len(kept) :]
    for operation in dropped:
        if isinstance(operation, Append):
            operation.outgoing.release()
    one.waiting = deque(kept)
    return dropped
