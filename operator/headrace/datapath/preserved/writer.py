"""Writer of planned batches and holes at their offsets."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from headrace.api import TopicPartition
from headrace.api.offsets import GapPolicy
from headrace.datapath.append import Appender
from headrace.datapath.chunk import Found, HeldResponse, Judged, Passage, Run, Why
from headrace.datapath.ledger import BatchWindow
from headrace.datapath.pipeline import Pipeline
from headrace.datapath.preserved.holes import (
    BATCH_RECORDS,
    REBUILD,
    Holes,
    WrongOffset,
    appended_elsewhere,
)
from headrace.datapath.preserved.owner import Closer, End, Opening, TaskProducers, copies_lost
from headrace.datapath.preserved.plan import Append, Operation, planned
from headrace.datapath.producer import Leaders
from headrace.datapath.rebuild import OneAtATime, TopicChanges
from headrace.datapath.spans import Outgoing, Span
from headrace.datapath.verify import BatchComparison
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import ProducerIdentity, Reply, start

_NOBODY = ProducerIdentity(-1, -1)
"""Unused identity: ``begin`` sets an identity for each partition."""


class FirstBatch(Protocol):
    """Check that the target stores the first batch after a takeover as it was sent.

    An earlier owner may have sent another batch with as many records, from the source's log before
    it was compacted. If that batch is appended first, the broker takes this owner's batch for a
    repetition.
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
            with_records: Whether long holes are filled with empty records, as in ``Holes``.
        """
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
        """Write a partition from ``end`` on. ``closer`` writes its first marker."""
        if closer is not None:
            # The epoch was raised again, so the closers of other partitions need the new one.
            for one in self._partitions.values():
                if one.closer and one.closer.transactional_id == closer.transactional_id:
                    one.closer = closer
            if closer.identity.epoch == end.identity.epoch:
                closer = None  # the partition is fenced already
        self._partitions[at] = _Partition(
            end.offset, end.offset, closer=closer, checked=self._first is None
        )
        self._appender.begin(at, end.identity, end.sequence)

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
        """Drop and return waiting operations. Later operations follow the remaining ones."""
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
    """Drop and return all waiting operations, except a hole that is being filled."""
    waiting = list(one.waiting)
    kept = waiting[: int(one.filling)]
    dropped = waiting[len(kept) :]
    for operation in dropped:
        if isinstance(operation, Append):
            operation.outgoing.release()
    one.waiting = deque(kept)
    return dropped


_MOST_WAITING = 64
"""Number of waiting operations of a partition at which no more of it is read."""
_MARKERS = 1_000
"""Number of offsets of a long hole that are filled by markers at a time, which takes some seconds.
They then count as copied, so that another owner can fill the rest."""


class PreservedPipeline(Pipeline):
    """Pipeline of a lane with preserved offsets. One owner has taken over all its partitions."""

    _copies_spans = False
    _writer: Writer | None = None
    _owner: TaskProducers | None = None

    async def begin(self) -> None:
        """Do nothing, because the producer ids arrive with the partitions."""

    @property
    def _sending(self) -> Writer | None:
        return self._writer

    def write_from(self, at: TopicPartition, opening: Opening) -> None:
        """Open a partition of the target, before it is read."""
        if self._writer is None or self._owner is not opening.owner:
            if self._writer is not None:
                self._writer.close()
            self._owner = opening.owner
            self._writer = Writer(
                self._outlet.leaders,
                opening.owner,
                self._written,
                self._failed,
                first=self._check_first,
                waiting=self._say_target,
                with_records=self._resources.holes is GapPolicy.ABORTED_FILLERS,
            )
        self._writer.begin(at, opening.end, opening.closer)
        self.reader.wake()

    def forget(self, at: TopicPartition) -> None:
        """Stop writing a partition of the target."""
        if self._writer is not None:
            self._writer.forget(at)

    def leave(self, at: TopicPartition) -> None:
        """Drop waiting data of a source partition, and complete data in flight."""
        with self._state.lock:
            window = self._state.windows.get(at)
            if window is None or self._writer is None:
                return
            dropped = self._writer.leave(window.target)
            sizes = [one.outgoing.payload_bytes for one in dropped if isinstance(one, Append)]
            window.unsent(len(dropped), sum(sizes))
            self.reader.rewind(at, window.position)

    def readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition]:
        windows = self._state.windows
        return {
            at
            for at in super().readable(ats)
            if (window := windows.get(at)) is not None
            and self._waits(window.target) < _MOST_WAITING
        }

    def _waits(self, at: TopicPartition) -> int:
        return 0 if self._writer is None else self._writer.waits(at)

    def _pass(
        self,
        window: BatchWindow,
        found: Iterable[Found],
        held: HeldResponse,
        suspects: OneAtATime | None,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        operations = planned(
            self._counted(found),
            start=window.position,
            release=held.release,
            copies=self._resources.holes is GapPolicy.COPIES,
        )
        for operation in operations:
            if isinstance(operation, Append) and not operation.rebuilt:
                held.use()
            self._write(window, operation)
            if window.at in self._state.problems:
                return

    def _write(self, window: BatchWindow, operation: Operation) -> None:
        state = self._state
        if not window.in_flight:
            state.waiting_since_s[window.at] = self._loop.now_s()
        if isinstance(operation, Append):
            window.sent(operation.outgoing)
            state.handed += operation.outgoing.records
        else:
            filled = self._resources.holes is GapPolicy.ABORTED_FILLERS
            for piece in operation.pieces(BATCH_RECORDS if filled else _MARKERS):
                window.skipping(piece.next)
                self._give(window, piece)
            return
        self._give(window, operation)

    def _give(self, window: BatchWindow, operation: Operation) -> None:
        assert self._writer is not None
        self._writer.write(window.target, operation)

    def _counted(self, found: Iterable[Found]) -> Iterator[Judged | Run]:
        copied = self._state.copied
        for one in found:
            assert not isinstance(one, Span), "batches are planned one by one"
            if isinstance(one, Run):
                copied.rebuild(one.batches, one.size, Why.SMALL)
            elif one.passage is Passage.COPY:
                copied.batches_copied += 1
                copied.bytes_copied += len(one.batch.data)
            elif one.passage is Passage.REBUILD and one.why is not None:
                copied.rebuild(1, len(one.batch.data), one.why)
            yield one

    # Callbacks of the writer

    def _written(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        if outgoing is not None:
            self._delivered(at, outgoing, next_offset - outgoing.records)
            return
        state = self._state
        with state.lock:
            if (window := state.by_target.get(at)) is None:
                return
            state.copied.filled += window.skipped(next_offset)
            self._epochs.delivered()
            if window.in_flight:
                state.waiting_since_s[window.at] = self._loop.now_s()
            else:
                state.waiting_since_s.pop(window.at, None)
        self.reader.wake()

    def _check_first(
        self, at: TopicPartition, outgoing: Outgoing, done: Callable[[HeadraceError | None], None]
    ) -> None:
        offset = outgoing.first_offset

        def found(reply: Reply[tuple[BatchComparison, str]]) -> None:
            verdict, why = reply.result()
            name = self._target.name
            if verdict is BatchComparison.SAME:
                done(None)
            elif verdict is BatchComparison.NOT_READ:
                done(
                    Retriable(f"could not read {at} on {name} back from offset {offset} on: {why}")
                )
            else:
                done(
                    WrongOffset(
                        at,
                        offset,
                        f"{at} on {name} does not hold from offset {offset} on what the source "
                        f"holds there: {why}; an earlier owner wrote what the source held before "
                        f"it was compacted, or another client writes there; {REBUILD}",
                    )
                )

        start(self._verifier.verdict(at, offset, outgoing.batch)).then(found)
