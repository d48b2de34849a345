"""Append of batches to a cluster in order, by an idempotent producer.

A batch whose outcome is unknown is sent again as the same bytes, with the same producer identity
and sequence, until the target answers. The target appends it only once, as long as it remembers the
producer.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Protocol

from headrace.api import TopicPartition
from headrace.datapath.producer import Entry, Leaders, PartitionQueue, State
from headrace.datapath.rebuild import halves
from headrace.datapath.spans import (
    Acknowledged,
    BatchCorrupt,
    BatchRefused,
    Damaged,
    Failed,
    Indefinite,
    Outgoing,
    Span,
)
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    Answer,
    CorruptBatch,
    EventLoop,
    Garbled,
    Produced,
    ProduceResult,
    ProducerIdentity,
    Reply,
    UnreadableBatch,
    refusal,
    start,
)

_REPORTED_FROM = 3
"""Consecutive failures of a partition before an error is reported. A moving leader causes fewer."""
_SEARCH_S = 0.1
"""Minimum time in seconds between two requests for partition leaders."""
_MAX_DAMAGED = 3
"""Maximum number of consecutive times that an intact batch may arrive damaged at the target."""
_MAX_UNREADABLE = 5
"""Number of consecutive unreadable responses for a partition after which it fails."""
_FORGOTTEN_S = 600.0
"""Idle time of a partition, in seconds, after which its next batch is sent alone, like its first
batch. Brokers forget a producer that is idle for a day (``producer.id.expiration.ms``)."""


class CopiesLost(Retriable):
    """A new leader lacks acknowledged records. Nothing more is sent to the partition."""


class LedAgain(Protocol):
    """Check of partitions that have a leader again, before a batch is sent to the leader.

    A leader that has lost all batches of the producer accepts a batch with any sequence, so the
    sequence does not reveal the loss.
    """

    def __call__(
        self, partitions: Set[TopicPartition]
    ) -> Coroutine[Reply[Any], None, Mapping[TopicPartition, HeadraceError]]:
        """Return the errors of partitions to which nothing may be sent.

        ``CopiesLost`` is final. Other ``Retriable`` errors are retried.
        """
        ...


class RowsAcknowledged(Protocol):
    """Receiver of acknowledged batches of spans, called once for each response."""

    def __call__(self, entries: Sequence[Entry]) -> None:
        """Count batches, in partition order, that the target appended from ``base_offset`` on.

        Do not keep the entries: the queue uses them again.
        """
        ...


class Appender:
    """Appends batches for one producer identity. Call it from the thread of its loop.

    ``append`` queues batches. ``flush`` sends them, and each response sends more. A partition
    without a leader, or on an unreachable broker, does not delay other partitions.
    """

    def __init__(
        self,
        loop: EventLoop,
        leaders: Leaders,
        identity: ProducerIdentity,
        acknowledged: Acknowledged,
        failed: Failed,
        *,
        waiting: Callable[[str], None] = lambda _: None,
        damaged: Damaged = lambda _, __: None,
        request_admission: Callable[[TopicPartition], None] | None = None,
        led_again: LedAgain | None = None,
        rows_acknowledged: RowsAcknowledged | None = None,
    ) -> None:
        """Create an appender without partitions.

        Each partition's sequence numbers begin with 0.

        Args:
            loop: Loop in whose thread the appender is called.
            leaders: Leaders of the target, which other appenders may share. Partitions are the
                target's.
            identity: Identity for partitions that do not ``begin`` with another one.
            acknowledged: Receives acknowledged batches.
            failed: Receives failed partitions.
            waiting: Receives sentences about operations that are repeated until they succeed.
            damaged: Receives responses that a second response has contradicted.
            request_admission: Called by a transactional appender with each partition that has data
                to send but is not part of the transaction, until ``admit``.
            led_again: Called when a partition has a leader again.
            rows_acknowledged: Used instead of ``acknowledged`` for batches of spans.
        """
        self._loop, self._leaders, self._identity = loop, leaders, identity
        self._cluster = leaders.cluster
        self._acknowledged, self._failed, self._waiting = acknowledged, failed, waiting
        self._damaged = damaged
        self._request_admission, self._led_again = request_admission, led_again
        self._rows_acknowledged = rows_acknowledged
        self._identities: dict[TopicPartition, ProducerIdentity] = {}
        """Producer identities that were set by ``begin``."""
        self._sequences: dict[TopicPartition, int] = {}
        """First sequence numbers of partitions in ``_identities``."""
        self._ends: dict[TopicPartition, int] = {}
        """Ends that ``expect`` has set for partitions without a queue."""
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._lost: list[PartitionQueue] = []
        """Partitions whose leader must be looked up."""
        self._searching = self._closed = False

    @property
    def pending(self) -> int:
        """Number of batches that are not acknowledged, or still in flight after a failure."""
        return sum(max(len(queue), queue.on_wire) for queue in self._queues.values())

    def begin(self, at: TopicPartition, identity: ProducerIdentity, sequence: int = 0) -> None:
        """Use another producer identity for a partition, with sequences from ``sequence`` on.

        The partition must have no pending batches. A sequence of 0 requires that nothing was ever
        appended to the partition with this identity.
        """
        self._identities[at], self._sequences[at] = identity, sequence
        self._queues.pop(at, None)

    def expect(self, at: TopicPartition, end: int) -> None:
        """Check the offsets of a partition's batches from now on. The next one is at ``end``.

        Each following batch is expected at the end of the previous one. If a response contains
        another offset, the batch is sent again, and the offset is believed if the second response
        repeats it. Call this method after ``begin``, while the partition has no pending batches.
        """
        if (queue := self._queues.get(at)) is not None:
            queue.end = end
        else:
            self._ends[at] = end

    def append(self, at: TopicPartition, outgoing: Outgoing | Span) -> None:
        """Queue a batch, or the batches of a span, for a partition. ``flush`` sends them.

        If the partition has failed or the appender is closed, the memory is released at once.
        """
        if (queue := self._queues.get(at)) is None:
            queue = self._queues[at] = PartitionQueue(
                at, self, self._identity_of(at), self._sequences.get(at, 0)
            )
            queue.held = self._request_admission is not None
            queue.end = self._ends.pop(at, None)
        if queue.failed or self._closed:
            if isinstance(outgoing, Span):
                outgoing.release(outgoing.row_count)
            else:
                outgoing.release()
            return
        if not queue and queue.known_s is not None:
            rested_s = self._loop.now_s() - queue.known_s
            queue.known_s = None if rested_s > _FORGOTTEN_S else queue.known_s
        queue.add(outgoing)
        if queue.held and self._request_admission is not None:
            self._request_admission(at)
        elif not queue.listed:
            self._enlist(queue)

    def admit(self, partitions: Iterable[TopicPartition]) -> None:
        """Send the data of partitions that are now part of the transaction."""
        for at in partitions:
            queue = self._queues[at]
            queue.held = False
            if queue and not queue.listed:
                self._enlist(queue)
        self.flush()

    def hold(self) -> None:
        """Send no data after the end of a transaction, until ``admit``.

        Call it while nothing is ``pending``. In each partition of the transaction, the next batch
        is expected one offset later, because a marker follows the batches.
        """
        for queue in self._queues.values():
            if queue.end is not None and not queue.held:
                queue.end += 1
            queue.held = True

    def _identity_of(self, at: TopicPartition) -> ProducerIdentity:
        return self._identities.get(at, self._identity)

    def flush(self) -> None:
        """Send queued batches without waiting."""
        self._leaders.pump()

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the unsent batches of these partitions.

        Batches in flight are still completed. ``append`` may be used again afterwards.
        """
        for at in partitions:
            if (queue := self._queues.get(at)) is not None:
                queue.drop_untried()

    def drop_unsent(self) -> None:
        """Drop the unsent batches of all partitions.

        ``pending`` becomes 0 once the outcome of the other batches is known.
        """
        self.leave(list(self._queues))

    def close(self) -> None:
        """Drop all batches. The outcome of batches in flight remains unknown."""
        self._closed = True
        for queue in self._queues.values():
            queue.fail()

    # Leaders

    def _enlist(self, queue: PartitionQueue) -> None:
        if queue.resting or queue.failed or queue.held:
            return
        if queue.leader is None:
            if queue in self._lost:
                return
            known = self._cluster.view.leadership(queue.at)
            if known is None:
                self._search(queue)
                return
            queue.leader = known.leader
        leader = self._leaders.of(queue.leader)
        queue.turns = leader.turns
        leader.enlist(queue)

    def _search(self, queue: PartitionQueue) -> None:
        self._lost.append(queue)
        if not self._searching:
            self._searching = True
            start(self._find_leaders()).then(self._searched)

    async def _find_leaders(self) -> None:
        """Look up leaders until all are found, with one request at a time for all partitions."""
        while self._lost and not self._closed:
            topics = {queue.at.topic for queue in self._lost}
            error: HeadraceError | None = None
            try:
                await self._cluster.refresh(topics)
            except HeadraceError as failure:
                error = failure
            asked = [queue for queue in self._lost if queue.at.topic in topics]
            self._lost = [queue for queue in self._lost if queue.at.topic not in topics]
            unfit: Mapping[TopicPartition, HeadraceError] = {}
            if error is None and self._led_again is not None:
                unfit = await self._led_again({one.at for one in asked if not one.failed})
            for queue in asked:
                self._found(queue, error or unfit.get(queue.at))
            self.flush()
            await self._loop.sleep(_SEARCH_S)

    def _searched(self, reply: Reply[None]) -> None:
        self._searching = False
        reply.result()

    def _found(self, queue: PartitionQueue, error: HeadraceError | None) -> None:
        if queue.failed:
            return
        if error is None and self._cluster.view.leadership(queue.at) is not None:
            self._enlist(queue)
            return
        if error is None:
            error = self._leaderless(queue.at)
        if isinstance(error, Retriable) and not isinstance(error, CopiesLost):
            self._rest(queue, error)
        else:
            self._fail(queue, error)

    def _leaderless(self, at: TopicPartition) -> HeadraceError:
        topic = self._cluster.view.topics.get(at.topic)
        if topic is not None and topic.error.value:
            return refusal(topic.error, f"append to {at} on {self._cluster.name}")
        return Retriable(f"{at} on {self._cluster.name} has no leader")

    def _rest(self, queue: PartitionQueue, why: HeadraceError) -> None:
        """Look up the leader again after a delay, then send again."""
        queue.leader, queue.resting = None, True
        queue.failures += 1
        if queue.failures >= _REPORTED_FROM:
            self._waiting(str(why))
        self._loop.call_later(queue.backoff.next_s(), partial(self._rested, queue))

    def _rested(self, queue: PartitionQueue) -> None:
        queue.resting = False
        if not self._closed and not queue.failed:
            self._search(queue)

    def unreachable(self, queue: PartitionQueue, error: HeadraceError) -> None:
        if not isinstance(error, Retriable):
            self._fail(queue, error)
        elif not queue.resting and not queue.failed:
            self._rest(queue, error)

    # Responses

    def answered(self, queue: PartitionQueue, entry: Entry, reply: Reply[Produced]) -> None:
        if (error := reply.error) is not None:
            if not isinstance(error, HeadraceError):
                raise error
            if isinstance(error, Garbled) and self._unreadable(queue, entry, error):
                return
            self._again(queue, entry, error)
            return
        answer = reply.result().answers.get(queue.at)
        if answer is None:
            name = self._cluster.name
            self._again(queue, entry, Retriable(f"{name} gave no answer for {queue.at}"))
        elif answer.outcome is ProduceResult.APPENDED:
            entry.base_offset = answer.base_offset
            self.appended([entry])
        else:
            self._not_appended(queue, entry, answer)

    def appended(self, entries: Sequence[Entry]) -> None:
        """Acknowledge the batches of each partition in order, and send more.

        This is a hot path: it runs for each response.
        """
        now_s = self._loop.now_s()
        done: list[Entry] = []
        for entry in entries:
            queue = entry.queue
            if queue.failed:
                self._late(queue, entry)
                continue
            entry.state, queue.known_s = State.APPENDED, now_s
            queue.on_wire -= 1
            queue.unreadable = 0
            if queue.failures:
                queue.failures = queue.damaged = 0
                queue.backoff.reset()
            in_order = queue.entries
            while in_order and (first := in_order[0]).state is State.APPENDED:
                if (end := queue.end) is not None:
                    expected = first.base_offset == end and queue.doubted is None
                    if not expected and not self._is_believed(queue, first):
                        break
                    queue.end = first.base_offset + first.records
                done.append(in_order.popleft())
                queue.length -= 1
                if queue.place:
                    queue.place -= 1
        self._tell(done)
        for entry in entries:
            queue = entry.queue
            if queue.again is not None or queue.leader is None:
                self._go_on(queue)
            elif (
                queue.length > queue.on_wire
                and not queue.listed
                and not (queue.resting or queue.failed or queue.held)
            ):
                queue.listed = True
                queue.turns.append(queue)

    def _is_believed(self, queue: PartitionQueue, first: Entry) -> bool:
        before, offset = queue.doubted, first.base_offset
        if before not in (None, offset):
            self._damaged(queue.at, f"a batch was appended at offset {before}, then at {offset}")
        return queue.is_believed(first)

    def _tell(self, done: Sequence[Entry]) -> None:
        """Report acknowledged batches in order, and release them."""
        rows: list[Entry] = []
        for entry in done:
            if isinstance(entry.source, Span):
                rows.append(entry)
                continue
            self._tell_rows(rows)
            rows.clear()
            source = entry.outgoing
            self._acknowledged(entry.queue.at, source, entry.base_offset)
            source.release()
        self._tell_rows(rows)

    def _tell_rows(self, rows: Sequence[Entry]) -> None:
        if not rows:
            return
        assert self._rows_acknowledged is not None, "nobody counts the batches of spans"
        self._rows_acknowledged(rows)
        for entry in rows:
            span = entry.source
            assert isinstance(span, Span)
            if span.held == 1:
                span.release_row()
            else:
                span.held -= 1
            # A reused entry must not keep the response's memory.
            del entry.source, entry.parts
            entry.queue.unused.append(entry)

    def _again(self, queue: PartitionQueue, entry: Entry, why: HeadraceError) -> None:
        if queue.failed:
            self._late(queue, entry)
            return
        queue.came_back(entry, why)
        self._go_on(queue)

    def _unreadable(self, queue: PartitionQueue, entry: Entry, why: Garbled) -> bool:
        """Return whether the partition fails because of repeated unreadable responses.

        Only the partition's first batch counts, because an unreadable response fails all batches in
        flight on its connection.
        """
        if queue.failed or not queue.is_first(entry):
            return False
        queue.unreadable += 1
        if queue.unreadable < _MAX_UNREADABLE:
            return False
        queue.came_back(entry, why)
        message = (
            f"{why}: {queue.unreadable} answers in a row, so that it is not known what of "
            f"{queue.at} is appended from source offset {entry.outgoing.first_offset} on"
        )
        error = Indefinite(queue.at, entry.outgoing.first_offset, "UNREADABLE_ANSWER", message)
        self._fail(queue, error)
        return True

    def _not_appended(self, queue: PartitionQueue, entry: Entry, answer: Answer) -> None:
        at, outgoing, first = queue.at, entry.outgoing, queue.is_first(entry)
        last = outgoing.next_offset - 1
        alone = last == outgoing.first_offset
        offsets = f"offset {last}" if alone else f"offsets {outgoing.first_offset} to {last}"
        error = answer.error(f"append source {offsets} to {at} on {self._cluster.name}")
        if not first or answer.outcome is ProduceResult.AGAIN:
            # The target's rejection counts only if all earlier batches are acknowledged.
            self._again(queue, entry, error)
            return
        damaged = answer.outcome is ProduceResult.CORRUPT and outgoing.batch.intact
        if damaged and queue.damaged < _MAX_DAMAGED:
            queue.damaged += 1
            self._again(queue, entry, error)
            return
        if answer.outcome is ProduceResult.TOO_LARGE and outgoing.records > 1 and not queue.failed:
            queue.came_back(entry, error)
            queue.to_split = True
            self._go_on(queue)
            return
        queue.came_back(entry, error)
        offset = outgoing.first_offset
        match answer.outcome:
            case ProduceResult.OUT_OF_ORDER | ProduceResult.INDEFINITE:
                error = Indefinite(at, offset, answer.name, str(error))
            case ProduceResult.CORRUPT if not damaged:
                error = BatchCorrupt(at, offset, f"{error}; the batch is damaged: fetch it again")
            case ProduceResult.REFUSED | ProduceResult.TOO_LARGE | ProduceResult.CORRUPT:
                refused = _source_offsets(outgoing, answer.refused)
                error = BatchRefused(at, refused, answer.name, str(error))
        self._fail(queue, error)

    def _go_on(self, queue: PartitionQueue) -> None:
        """Continue after a response.

        Batches that must be sent again are sent once no batch of the partition is in flight.
        """
        if queue.failed or queue.resting:
            return
        if queue.again is None:
            if not queue.listed:
                self._enlist(queue)
        elif not queue.on_wire:
            if queue.to_split:
                queue.to_split = False
                self._split(queue)
            else:
                self._rest(queue, queue.again)

    def _split(self, queue: PartitionQueue) -> None:
        if (entry := queue.next()) is None:
            return
        outgoing = entry.outgoing
        try:
            parts = halves(outgoing)
        except CorruptBatch as error:
            self._fail(queue, BatchCorrupt(queue.at, outgoing.first_offset, str(error)))
            return
        except UnreadableBatch as error:
            offsets = _source_offsets(outgoing, ())
            why = f"{queue.again}; it cannot be split: {error}"
            self._fail(queue, BatchRefused(queue.at, offsets, "MESSAGE_TOO_LARGE", why))
            return
        queue.replace(parts)
        entry.release()
        self._enlist(queue)

    def _fail(self, queue: PartitionQueue, error: HeadraceError) -> None:
        if not queue.failed:
            queue.fail()
            self._failed(queue.at, error)

    def _late(self, queue: PartitionQueue, entry: Entry) -> None:
        """Handle a response that arrives after the partition has failed."""
        queue.on_wire -= 1
        entry.release()


def _source_offsets(outgoing: Outgoing, named: Iterable[int]) -> range:
    """Return the source offsets from the first to the last rejected record.

    ``named`` are the indexes of records that the target rejected. Without them, the whole batch
    counts as rejected.
    """
    indexes = [index for index in named if 0 <= index < outgoing.records]
    first, last = (indexes[0], indexes[-1]) if indexes else (0, outgoing.records - 1)
    return range(outgoing.source_offset(first), outgoing.source_offset(last) + 1)
