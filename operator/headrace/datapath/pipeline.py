"""Pipeline of a lane in the loop's thread: from fetch to append and back."""

import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial

from headrace.api import TopicPartition
from headrace.datapath.append import Appender
from headrace.datapath.chunk import Found, HeldResponse, Misjoined, Run, each_found_in, found_in
from headrace.datapath.commit import Commits, Committed
from headrace.datapath.fetch import Reader
from headrace.datapath.lane import RecordRefused
from headrace.datapath.ledger import BatchWindow, LaneState
from headrace.datapath.locate import SourcePartition
from headrace.datapath.plan import Passing
from headrace.datapath.producer import Entry
from headrace.datapath.rebuild import OneAtATime, TopicChanges
from headrace.datapath.resources import LaneResources, LoopThread
from headrace.datapath.spans import BatchCorrupt, BatchRefused, Outgoing, Sending, Span
from headrace.datapath.transactions import Records
from headrace.datapath.verify import TargetEpochs, Verifier
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    ClusterClient,
    ProducerIdentity,
    UnreadableBatch,
    UnsupportedBroker,
    idempotent_producer,
)
from headrace.logs import get_logger
from headrace.replication import OwnerProducer, TargetSeen
from headrace.timing import Backoff

log = get_logger(__name__)

_DRAIN_S = 0.005
_IDENTITY_S = 5.0


class Pipeline:
    """Reader and appender of one lane. It is the reader's ``Sink``.

    The appender has its own producer id.
    """

    _copies_spans = True
    """Whether runs of batches are sent as spans."""

    def __init__(self, resources: LaneResources, state: LaneState, thread: LoopThread) -> None:
        self._resources, self._state = resources, state
        self._loop = thread.loop
        buffers = thread.buffers
        self._source = ClusterClient(thread.loop, resources.source, buffers=buffers)
        self._outlet = resources.outlet(thread)
        self._target = self._outlet.cluster
        self._closed = False
        self.reader = Reader(self._source, thread.memory, self, resources.bandwidth, resources.rack)
        self._verifier = Verifier(
            self._target,
            resources.verification,
            state.copied,
            differs=self._differs,
            room=self.reader.wake,
        )
        self._epochs = TargetEpochs(self._target, self._unseen, self._saw, self._failed)
        self._appender: Appender | None = None
        self._commits: Commits | None = None
        """Commits of a transactional lane; None before its first partition."""
        self._identities: dict[TopicPartition, ProducerIdentity] = {}
        self._joiner, self._scanner = thread.joiner, thread.scanner
        self._passing = Passing(
            state,
            self._loop,
            self._verifier,
            self._joiner,
            append=self._append,
            rewind=self.reader.rewind,
        )

    # Begin and end.

    async def begin(self) -> None:
        """Get a producer id. Nothing is read before that.

        A transactional lane gets its producer id with its first partition instead.
        """
        if self._resources.exactly_once:
            return
        backoff = Backoff(0.1, 1.0)
        while not self._state.ended:
            try:
                identity = await idempotent_producer(self._target, timeout_s=_IDENTITY_S)
            except HeadraceError as error:
                if isinstance(error, UnsupportedBroker) or not isinstance(error, Retriable):
                    self._state.broken = error
                    return
                self._say_target(error)
                await self._loop.sleep(backoff.next_s())
                continue
            self._appender = Appender(
                self._loop,
                self._outlet.leaders,
                identity,
                self._delivered,
                self._failed,
                waiting=self._say_target,
                rows_acknowledged=self._rows_delivered,
            )
            for at, writes_as in self._identities.items():
                self._appender.begin(at, writes_as)
            self.reader.wake()
            return

    def write_as(self, at: TopicPartition, identity: ProducerIdentity) -> None:
        """Set the identity for a partition of the target, before the partition is read."""
        self._identities[at] = identity
        if self._appender is not None:
            self._appender.begin(at, identity)

    def write_in_transactions(self, writer: OwnerProducer) -> None:
        """Write all partitions in transactions of this producer. Call it before they are read."""
        if self._commits is None:
            self._commits = Commits(
                self._target,
                self._state,
                writer,
                self._delivered,
                self._failed,
                rows_acknowledged=self._rows_delivered,
                waiting=self._say_target,
                wake=self.reader.wake,
            )
            self._appender = self._commits.appender

    @property
    def _sending(self) -> Sending | None:
        """The appender; None while nothing can be sent."""
        return self._appender

    def drop_unsent(self) -> None:
        """Drop unsent batches, and stop sending."""
        if self._sending is not None:
            self._sending.drop_unsent()

    async def drain(self, drained: threading.Event, timeout_s: float) -> None:
        """Set the event once the outcome of all sent batches is known.

        If that takes longer than ``timeout_s``, the event is not set.
        """
        deadline_s = self._loop.now_s() + timeout_s
        while self._sending is not None and self._sending.pending:
            if self._loop.now_s() > deadline_s:
                return
            await self._loop.sleep(_DRAIN_S)
        drained.set()

    async def cut(self) -> None:
        assert self._commits is not None
        await self._commits.cut()

    async def commit(self, progress: Mapping[TopicPartition, Records], done: Committed) -> None:
        assert self._commits is not None
        await self._commits.commit(progress, done)

    async def abort(self) -> None:
        if self._commits is not None:
            await self._commits.abort()

    def close(self) -> None:
        """Close everything that no other lane uses. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.reader.close()
        self._verifier.close()
        self._epochs.close()
        if self._commits is not None:
            self._commits.close()
        elif self._sending is not None:
            self._sending.close()
        self._source.close()
        self._resources.release(self._outlet)

    def _say_target(self, why: object) -> None:
        self._state.say(self._resources.target.alias, why)

    # Methods of ``Sink`` that control the reader

    def ready(self) -> bool:
        if self._sending is None or self._verifier.full:
            return False
        return not self._state.rests(self._loop.now_s())

    def readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition]:
        return self._state.readable(ats)

    def held_back(self, at: TopicPartition) -> bool:
        state, now_s = self._state, self._loop.now_s()
        return state.wanted(at) and not state.rests(now_s) and not state.is_stuck(at, now_s)

    def stuck(self) -> bool:
        with self._state.lock:
            return self._state.all_stuck(self._loop.now_s())

    def saw_end(self, at: TopicPartition, end: int) -> None:
        self._state.ends[at] = end

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        with self._state.lock:
            self._state.problem(at, error)

    def damaged(self, at: TopicPartition, why: str) -> None:
        self._state.copied.damaged += 1
        log.warning("an answer was damaged: fetching it again", partition=str(at), why=why)
        name = self._resources.source.alias
        self._state.say(name, f"the broker's answer was damaged: {at}: {why}")

    def away(self, error: HeadraceError) -> None:
        self._state.say(self._resources.source.alias, error)

    # Methods of ``Sink`` that receive data

    def take(
        self,
        source: SourcePartition,
        records: memoryview,
        aborted: Sequence[tuple[int, int]],
        held: HeldResponse,
    ) -> None:
        state, at = self._state, source.at
        with state.lock:
            window, suspects = state.windows.get(at), state.suspects.get(at)
            if window is None or not state.wanted(at) or window.position != source.position:
                return
            if state.rests(self._loop.now_s()):
                return
            if suspects is not None and suspects.waiting:
                return
            try:
                each = self._passing.takes_each(suspects)
                changes = self._resources.changes(at.topic)
                unchanged = changes.nothing
                helped = unchanged and not each and self._joiner.helper is not None
                join = partial(self._join, window) if helped else None
                agreement = source.agreement
                whole = self._scanner.scan(records, window.position, aborted)
                scanned = agreement.believed(
                    whole, window.position, window.leader_epoch, source.epoch, aborted
                )
                if scanned is not whole or agreement.disagreement:
                    self._doubt(source)
                found: Iterable[Found] = (
                    found_in(records, scanned, join=join, release=held.release)
                    if self._copies_spans and unchanged and suspects is None
                    else each_found_in(records, scanned, join=join)
                )
                self._pass(window, found, held, suspects, changes, singly=each or helped)
            except UnreadableBatch as error:
                state.problem(at, Fatal(f"could not read {at} of {self._source.name}: {error}"))
            finally:
                source.advance(window.position, window.leader_epoch)

    def _doubt(self, source: SourcePartition) -> None:
        """Fetch data again that were not accepted, and report responses that disagree."""
        source.again()
        agreement = source.agreement
        if agreement.disagreement:
            self.damaged(source.at, agreement.disagreement)
            agreement.disagreement = ""

    def _join(self, window: BatchWindow, records: memoryview, start: int) -> Run | None:
        check = self._verifier.wanted
        try:
            return self._joiner.join(records, start, window.together_bytes, check=check)
        except Misjoined as error:
            self._verifier.misjoined(window.at, error.first, error.last)
            return None

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
        self._passing.take(window, found, held, suspects, changes, singly=singly)

    def taken(self) -> None:
        if self._sending is not None:
            self._sending.flush()

    def _append(self, at: TopicPartition, outgoing: Outgoing | Span) -> None:
        assert self._appender is not None
        self._appender.append(at, outgoing)

    # Callbacks of the appender

    def _delivered(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        state = self._state
        with state.lock:
            if (window := state.by_target.get(at)) is None:
                return
            window.delivered(outgoing, base_offset)
            if window.lost is not None:
                state.problem(window.at, window.lost)
            else:
                self._verifier.delivered(at, outgoing, base_offset)
                self._epochs.delivered()
            if window.in_flight:
                state.waiting_since_s[window.at] = self._loop.now_s()
            else:
                state.waiting_since_s.pop(window.at, None)
                suspects = state.suspects.get(window.at)
                if suspects is not None and suspects.waiting and state.wanted(window.at):
                    self._passing.send_suspects(window, suspects)
                    self._loop.call_later(0.0, self.taken)
        self.reader.wake_left_out()

    def _rows_delivered(self, entries: Sequence[Entry]) -> None:
        state, verifier = self._state, self._verifier
        with state.lock:
            BatchWindow.rows_delivered(entries, state.by_target)
            now_s, due = self._loop.now_s(), verifier.due
            for entry in entries:
                if (window := state.by_target.get(entry.queue.at)) is None:
                    continue
                if window.lost is not None:
                    state.problem(window.at, window.lost)
                elif due:
                    verifier.delivered(entry.queue.at, entry.outgoing, entry.base_offset)
                    due = verifier.due
                if window.in_flight:
                    state.waiting_since_s[window.at] = now_s
                else:
                    state.waiting_since_s.pop(window.at, None)
            self._epochs.delivered()
        self.reader.wake_left_out()

    def _unseen(self) -> dict[TopicPartition, int]:
        with self._state.lock:
            return {
                at: window.target_offset
                for at, window in self._state.by_target.items()
                if window.target_offset is not None
                and (window.target_seen is None or window.target_seen.offset < window.target_offset)
            }

    def _saw(self, at: TopicPartition, seen: TargetSeen) -> None:
        with self._state.lock:
            if (window := self._state.by_target.get(at)) is not None:
                window.target_seen = seen

    def _differs(self, at: TopicPartition, error: HeadraceError) -> None:
        with self._state.lock:
            if (window := self._state.by_target.get(at)) is not None:
                self._state.problem(window.at, error)

    def _failed(self, at: TopicPartition, error: HeadraceError) -> None:
        state = self._state
        with state.lock:
            if (window := state.by_target.get(at)) is None:
                return
            window.rewind()
            state.waiting_since_s.pop(window.at, None)
            state.problem(window.at, self._explained(window.at, error))

    def _explained(self, at: TopicPartition, error: HeadraceError) -> HeadraceError:
        if isinstance(error, BatchRefused):
            record = self._passing.alone.get(at)
            if record is not None and error.offsets != range(record.offset, record.offset + 1):
                record = None
            return RecordRefused(at, error.offsets, error.code, str(error), record)
        if isinstance(error, BatchCorrupt):
            # A network fault damages a batch once. The same batch again means that the source's log
            # is damaged.
            if self._resources.corrupt.get(at) == error.offset:
                return Fatal(str(error))
            self._resources.corrupt[at] = error.offset
        return error
