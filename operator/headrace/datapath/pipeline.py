"""Pipeline of a lane in the loop's thread: from fetch to append and back."""

import threading
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial

from headrace.api import TopicPartition
from headrace.datapath.chunk import Found, HeldResponse, Misjoined, Run, each_found_in, found_in
from headrace.datapath.delivery import DeliveryStrategy, LaneParts
from headrace.datapath.fetch import Reader
from headrace.datapath.lane import Reached, RecordRefused
from headrace.datapath.lane_state import LaneState
from headrace.datapath.ledger import Ledger
from headrace.datapath.locate import SourcePartition
from headrace.datapath.partition import OpenPartition
from headrace.datapath.plan import Passing
from headrace.datapath.producer import Entry
from headrace.datapath.resources import LaneResources, LoopThread
from headrace.datapath.spans import BatchCorrupt, BatchRefused, Outgoing, Span
from headrace.datapath.transactions import Mark
from headrace.datapath.verify import TargetEpochs, Verifier
from headrace.errors import Fatal, HeadraceError
from headrace.kafka.wire import ClusterClient, UnreadableBatch
from headrace.logs import get_logger
from headrace.replication import TargetSeen

log = get_logger(__name__)

_DRAIN_S = 0.005

MakeDelivery = Callable[[LaneParts], DeliveryStrategy]
"""Creates the delivery mode of a lane."""


class Pipeline:
    """Stages of one lane, from reader to appender and back. It is the reader's ``Sink``."""

    def __init__(
        self, resources: LaneResources, state: LaneState, thread: LoopThread, deliver: MakeDelivery
    ) -> None:
        """Create the pipeline. ``deliver`` creates the delivery mode of the lane."""
        self._resources, self._state = resources, state
        self._loop = thread.loop
        buffers = thread.buffers
        self._source = ClusterClient(thread.loop, resources.source, buffers=buffers)
        self._outlet = resources.outlet(thread)
        self._closed = False
        self.reader = Reader(self._source, thread.memory, self, resources.bandwidth, resources.rack)
        target = self._outlet.cluster
        self._verifier = Verifier(
            target,
            resources.verification,
            state.copied,
            differs=self._stop,
            room=self.reader.wake,
            max_bytes=resources.settings.unverified_bytes,
        )
        self._epochs = TargetEpochs(
            target,
            self._unseen,
            self._saw,
            self._stop,
            interval_s=resources.settings.epoch_interval_s,
        )
        self._joiner, self._scanner = thread.joiner, thread.scanner
        self._passing = Passing(
            state, self._loop, self._verifier, append=self._append, rewind=self.reader.rewind
        )
        self.delivery = deliver(
            LaneParts(
                resources,
                state,
                self._loop,
                self._outlet,
                self.reader,
                self._passing,
                self._verifier,
                acknowledged=self._delivered,
                rows_acknowledged=self._rows_delivered,
                filled=self._filled,
                failed=self._failed,
                waiting=self._say_target,
                damaged=self._target_damaged,
                reached=self.reached,
            )
        )

    # Begin and end.

    def drop_unsent(self) -> None:
        """Drop unsent batches, and stop sending."""
        if (sending := self.delivery.sending) is not None:
            sending.drop_unsent()

    async def drain(self, drained: threading.Event, timeout_s: float) -> None:
        """Set the event once the outcome of all sent batches is known.

        If that takes longer than ``timeout_s``, the event is not set.
        """
        deadline_s = self._loop.now_s() + timeout_s
        while (sending := self.delivery.sending) is not None and sending.pending:
            if self._loop.now_s() > deadline_s:
                return
            await self._loop.sleep(_DRAIN_S)
        drained.set()

    def close(self) -> None:
        """Close everything that no other lane uses. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.reader.close()
        self._verifier.close()
        self._epochs.close()
        self.delivery.close()
        self._source.close()
        self._resources.release(self._outlet)

    def reached(self, partition: OpenPartition, mark: Mark) -> Reached:
        """Return the state of a partition's copy. The caller holds the lock."""
        ledger = partition.ledger
        since_s = self.reader.silence.since_s.get(partition.at)
        return Reached(
            acknowledged=mark.acknowledged,
            target_offset=mark.target_offset,
            leader_epoch=mark.leader_epoch,
            in_flight=ledger.unfinished,
            end=partition.end,
            oldest_timestamp_ms=ledger.oldest_timestamp_ms,
            unexpected_offsets=ledger.unexpected_offsets,
            target_seen=mark.target_seen,
            silent_s=self._loop.now_s() - since_s if since_s is not None else 0.0,
        )

    def _say_target(self, why: object) -> None:
        self._state.say(self._resources.target.alias, why)

    # Methods of ``Sink`` that control the reader

    def ready(self) -> bool:
        if self.delivery.sending is None or self._verifier.full:
            return False
        return not self._state.rests(self._loop.now_s())

    def readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition]:
        return self.delivery.readable(self._state.readable(ats))

    def held_back(self, at: TopicPartition) -> bool:
        state, now_s = self._state, self._loop.now_s()
        return state.copies(at) and not state.rests(now_s) and not state.is_stuck(at, now_s)

    def stuck(self) -> bool:
        with self._state.lock:
            return self._state.all_stuck(self._loop.now_s())

    def saw_end(self, at: TopicPartition, end: int) -> None:
        if (partition := self._state.partitions.get(at)) is not None:
            partition.end = end

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        with self._state.lock:
            self._state.stop(at, error)

    def damaged(self, at: TopicPartition, why: str) -> None:
        self._count_damaged(self._resources.source.alias, at, why)

    def _target_damaged(self, at: TopicPartition, why: str) -> None:
        self._count_damaged(self._resources.target.alias, at, why)

    def _count_damaged(self, alias: str, at: TopicPartition, why: str) -> None:
        self._state.copied.damaged += 1
        log.warning("an answer was damaged", cluster=alias, partition=str(at), why=why)
        self._state.say(alias, f"the broker's answer was damaged: {at}: {why}")

    def away(self, error: HeadraceError) -> None:
        self._state.say(self._resources.source.alias, error)

    # Methods of ``Sink`` that receive data

    def take(
        self,
        source: SourcePartition,
        records: memoryview,
        aborted: Sequence[tuple[int, int]],
        response: HeldResponse,
    ) -> None:
        state, at = self._state, source.at
        with state.lock:
            partition = state.partitions.get(at)
            if partition is None or not state.copies(at) or partition.searching:
                return
            ledger = partition.ledger
            if ledger.position != source.position or state.rests(self._loop.now_s()):
                return
            try:
                each = self._passing.takes_each(partition)
                changes = self._resources.changes(at.topic)
                unchanged = changes.nothing
                helped = unchanged and not each and self._joiner.helper is not None
                join = partial(self._join, ledger) if helped else None
                agreement = source.agreement
                whole = self._scanner.scan(records, ledger.position, aborted)
                scanned = agreement.believed(
                    whole, ledger.position, ledger.leader_epoch, source.epoch, aborted
                )
                if scanned is not whole or agreement.disagreement:
                    self._doubt(source)
                found: Iterable[Found] = (
                    found_in(records, scanned, join=join, release=response.release)
                    if self.delivery.copies_spans and unchanged and partition.suspects is None
                    else each_found_in(records, scanned, join=join)
                )
                self.delivery.take(partition, found, response, changes, singly=each or helped)
            except UnreadableBatch as error:
                state.stop(at, Fatal(f"could not read {at} of {self._source.name}: {error}"))
            finally:
                source.advance(ledger.position, ledger.leader_epoch)

    def _doubt(self, source: SourcePartition) -> None:
        """Fetch data again that were not accepted, and report responses that disagree."""
        source.again()
        agreement = source.agreement
        if agreement.disagreement:
            self.damaged(source.at, agreement.disagreement)
            agreement.disagreement = ""

    def _join(self, ledger: Ledger, records: memoryview, start: int) -> Run | None:
        check = self._verifier.wanted
        try:
            return self._joiner.join(records, start, ledger.together_bytes, check=check)
        except Misjoined as error:
            self._verifier.misjoined(ledger.at, error.first, error.last)
            return None

    def taken(self) -> None:
        if (sending := self.delivery.sending) is not None:
            sending.flush()

    def _append(self, at: TopicPartition, outgoing: Outgoing | Span) -> None:
        self.delivery.append(at, outgoing)

    # Callbacks of the appender

    def _delivered(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        state = self._state
        with state.lock:
            if (ledger := state.ledgers.get(at)) is None:
                return
            ledger.delivered(outgoing, base_offset)
            if ledger.lost is not None:
                state.stop(ledger.at, ledger.lost)
            else:
                self._verifier.delivered(at, outgoing, base_offset)
                self._epochs.delivered()
            state.acknowledged(ledger, self._loop.now_s())
            partition = state.partitions[ledger.at]
            if partition.searching and not ledger.in_flight and state.copies(ledger.at):
                self._continue_search(partition)
        self.reader.wake_left_out()

    def _continue_search(self, partition: OpenPartition) -> None:
        """Send the next suspect records, or read them again later if the lane is idle now."""
        if self._state.rests(self._loop.now_s()):
            self._passing.drop_suspects(partition)
            return
        self._passing.send_suspects(partition)
        self._loop.call_later(0.0, self.taken)

    def _rows_delivered(self, entries: Sequence[Entry]) -> None:
        state, verifier = self._state, self._verifier
        with state.lock:
            Ledger.rows_delivered(entries, state.ledgers)
            now_s, due = self._loop.now_s(), verifier.due
            for entry in entries:
                if (ledger := state.ledgers.get(entry.queue.at)) is None:
                    continue
                if ledger.lost is not None:
                    state.stop(ledger.at, ledger.lost)
                elif due:
                    verifier.delivered(entry.queue.at, entry.outgoing, entry.base_offset)
                    due = verifier.due
                if ledger.in_flight:
                    state.waiting_since_s[ledger.at] = now_s
                else:
                    state.waiting_since_s.pop(ledger.at, None)
            self._epochs.delivered()
        self.reader.wake_left_out()

    def _filled(self, at: TopicPartition, next_offset: int) -> None:
        state = self._state
        with state.lock:
            if (ledger := state.ledgers.get(at)) is None:
                return
            state.copied.filled += ledger.skipped(next_offset)
            self._epochs.delivered()
            state.acknowledged(ledger, self._loop.now_s())
        self.reader.wake()

    def _unseen(self) -> dict[TopicPartition, int]:
        with self._state.lock:
            return {
                at: ledger.target_offset
                for at, ledger in self._state.ledgers.items()
                if ledger.target_offset is not None
                and (ledger.target_seen is None or ledger.target_seen.offset < ledger.target_offset)
            }

    def _saw(self, at: TopicPartition, seen: TargetSeen) -> None:
        with self._state.lock:
            if (ledger := self._state.ledgers.get(at)) is not None:
                ledger.target_seen = seen

    def _stop(self, at: TopicPartition, error: HeadraceError) -> None:
        """Stop a partition. Its batches in flight may still be acknowledged."""
        with self._state.lock:
            if (ledger := self._state.ledgers.get(at)) is not None:
                self._state.stop(ledger.at, error)

    def _failed(self, at: TopicPartition, error: HeadraceError) -> None:
        state = self._state
        with state.lock:
            if (ledger := state.ledgers.get(at)) is None:
                return
            ledger.rewind()
            state.waiting_since_s.pop(ledger.at, None)
            state.stop(ledger.at, self._explained(ledger.at, error))

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
