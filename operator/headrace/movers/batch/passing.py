"""From the gate to the appender: what is copied as it is, rebuilt, put together or left out."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.api import TopicPartition
from headrace.kafka.wire import (
    Batch,
    CorruptBatch,
    Loop,
    UnreadableBatch,
    decoded,
    stored_bytes,
    stored_records,
)
from headrace.movers.batch.coalescing import coalesced
from headrace.movers.batch.gate import Judged, Passage, Why
from headrace.movers.batch.joining import Joiner, Run
from headrace.movers.batch.lane_state import LaneState
from headrace.movers.batch.memory import HeldResponse
from headrace.movers.batch.one_at_a_time import OneAtATime
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.batch.partition_data import Found
from headrace.movers.batch.rebuild import rebuilt
from headrace.movers.batch.span import Span
from headrace.movers.batch.verifying import Verifier
from headrace.movers.batch.window import BatchWindow
from headrace.movers.lane import SourceRecord

_TOGETHER_BYTES = 64 << 10
"""Of small batches that become one: a target that takes less finds it too large, and it is divided
again."""


class Passing:
    """Of one lane, in the thread of its loop, with the lock of its state."""

    def __init__(
        self,
        state: LaneState,
        loop: Loop,
        verifier: Verifier,
        joiner: Joiner,
        *,
        append: Callable[[TopicPartition, Outgoing | Span], None],
        rewind: Callable[[TopicPartition, int], None],
    ) -> None:
        """``append`` gives to a partition of the target; ``rewind``: what was fetched of one of the
        source from that offset on was not taken."""
        self._state, self._loop, self._verifier = state, loop, verifier
        self._joiner, self._append, self._rewind = joiner, append, rewind
        self.alone: dict[TopicPartition, SourceRecord] = {}
        """The record of each partition that was sent by itself last."""

    def take(
        self,
        window: BatchWindow,
        found: Iterable[Found],
        held: HeldResponse,
        suspects: OneAtATime | None,
        *,
        singly: bool,
    ) -> None:
        """Pass what was fetched of a partition. With ``singly``, Python joins no batches.

        Raises ``CorruptBatch`` and ``UnreadableBatch``, behind what comes before such a batch.
        """
        for ones in map(_alone, found) if singly else self._together(found):
            as_one = len(ones) > 1 and self._pass_as_one(window, ones)
            for one in () if as_one else ones:
                if isinstance(one, Run):
                    self._send(window, one.outgoing)
                    self._state.copied.rebuild(one.batches, one.size, Why.SMALL)
                elif isinstance(one, Span):
                    held.use()
                    self._send(window, one)
                    self._state.copied.batches_copied += one.row_count
                    self._state.copied.bytes_copied += one.size
                else:
                    self._pass(window, one, held, suspects)
                if self._stopped(window, suspects):
                    break
            # It may fail at once; then what follows it would count as all there is.
            if self._stopped(window, suspects):
                return

    def takes_each(self, suspects: OneAtATime | None) -> bool:
        """Whether batches are not joined: they are searched, or read back as they were fetched."""
        return suspects is not None or self._verifier.compares_all

    def _together(self, found: Iterable[Found]) -> Iterator[Sequence[Found]]:
        """Yield the batches that Python joins into one, together."""
        for ones in coalesced(found):
            # What is rebuilt is not compared.
            alone = int(self._verifier.due)
            for one in ones[:alone]:
                yield [one]
            if rest := ones[alone:]:
                yield rest

    def _stopped(self, window: BatchWindow, suspects: OneAtATime | None) -> bool:
        return window.at in self._state.problems or (suspects is not None and suspects.waiting)

    def _pass_as_one(self, window: BatchWindow, ones: Sequence[Found]) -> bool:
        """Whether it is done: else one of them is damaged, and those before it are not."""
        batches = [one.batch for one in ones if not isinstance(one, Span)]
        try:
            made = rebuilt(
                batches, start=window.position, release=_nothing, most_bytes=_TOGETHER_BYTES
            )
        except (CorruptBatch, UnreadableBatch):
            return False
        for outgoing in made:
            self._send(window, outgoing)
        self._count_rebuilt(batches, Why.SMALL)
        return True

    def _pass(
        self, window: BatchWindow, one: Judged, held: HeldResponse, suspects: OneAtATime | None
    ) -> None:
        batch, position = one.batch, window.position
        next_offset = batch.last_offset + 1
        epoch = batch.leader_epoch if batch.magic == 2 else -1
        if one.passage is Passage.SKIP:
            window.passed(next_offset, epoch)
        elif suspects is not None and suspects.concerns(position, next_offset):
            few = suspects.together
            suspects.put(rebuilt([batch], start=position, release=_nothing, most_records=few))
            if not suspects.waiting:
                window.passed(next_offset, epoch)
            self.send_suspects(window, suspects)
            self._count_rebuilt([batch], Why.REFUSED)
        elif one.passage is Passage.COPY:
            held.use()
            self._send(window, Outgoing(batch, next_offset, held.release))
            self._state.copied.batches_copied += 1
            self._state.copied.bytes_copied += len(batch.data)
        else:
            for outgoing in rebuilt([batch], start=position, release=_nothing):
                self._send(window, outgoing)
            window.passed(next_offset, epoch)
            assert one.why is not None
            self._count_rebuilt([batch], one.why)

    def _count_rebuilt(self, batches: Sequence[Batch], why: Why) -> None:
        self._state.copied.rebuild(len(batches), stored_bytes(batches), why)

    def _send(self, window: BatchWindow, outgoing: Outgoing | Span) -> None:
        if not window.in_flight:
            self._state.waiting_since_s[window.at] = self._loop.now_s()
        window.sent(outgoing)
        self._state.handed += outgoing.records
        self._append(window.target, outgoing)

    def send_suspects(self, window: BatchWindow, suspects: OneAtATime) -> None:
        """The next of them, once all before it are acknowledged."""
        if not window.in_flight and (outgoing := suspects.next()) is not None:
            if outgoing.records == 1:
                self.alone[window.at] = _source_record(outgoing)
            self._send(window, outgoing)
            self._rewind(window.at, window.position)


def _alone(one: Found) -> Sequence[Found]:
    return (one,)


def _source_record(outgoing: Outgoing) -> SourceRecord:
    record = decoded(next(stored_records(outgoing.batch)))
    return SourceRecord(
        outgoing.first_offset, record.timestamp_ms, record.key, record.value, list(record.headers)
    )


def _nothing() -> None:
    """The new batch has memory of its own."""
