"""Treatment of judged batches: copied unchanged, rebuilt, joined or skipped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeGuard, TypeVar

from headrace.api import TopicPartition
from headrace.datapath.chunk import Found, HeldResponse, Joiner, Judged, Passage, Run, Why
from headrace.datapath.lane import SourceRecord
from headrace.datapath.ledger import BatchWindow, LaneState
from headrace.datapath.rebuild import OneAtATime, Rebuilt, TopicChanges, rebuilt
from headrace.datapath.spans import Outgoing, Span
from headrace.datapath.verify import Verifier
from headrace.kafka.wire import (
    Batch,
    CorruptBatch,
    EventLoop,
    UnreadableBatch,
    stored_bytes,
    stored_records,
)

# Small consecutive batches are joined into one, because the cost of a batch hardly depends on its
# size. These functions work without the C helper and have no side effects.

F = TypeVar("F", bound=Found)
_RECORDS, _BYTES = 8, 16 << 10
"""Maximum number of records and bytes of a small batch. Copying a batch takes about 50 us, and
rebuilding it in Python takes 4 us a record."""


def coalesced(batches: Iterable[F]) -> Iterator[Sequence[F]]:
    """Yield groups of batches in order: small batches to join, or one other batch.

    Only uncompressed batches of the same leader epoch outside transactions are joined. An error of
    ``batches`` is raised after the earlier batches were yielded.
    """
    waiting: list[F] = []
    waiting_epoch = -1
    try:
        for one in batches:
            epoch = one.batch.leader_epoch if _is_small(one) else None
            if waiting and epoch != waiting_epoch:
                yield waiting
                waiting = []
            if epoch is None:
                yield [one]
            else:
                waiting.append(one)
                waiting_epoch = epoch
    except CorruptBatch:
        if waiting:
            yield waiting
        raise
    if waiting:
        yield waiting


def _is_small(one: Found) -> TypeGuard[Judged]:
    if not isinstance(one, Judged):
        return False
    batch = one.batch
    return (
        one.passage is Passage.COPY
        and not batch.attributes
        and batch.record_count <= _RECORDS
        and batch.payload_bytes <= _BYTES
    )


_TOGETHER_BYTES = 64 << 10
"""Maximum size in bytes of the batch that Python joins. If the target rejects it as too large, it
is divided again."""


class Passing:
    """Sends the fetched batches of a lane to the appender.

    Call it in the loop's thread, with the lane state's lock.
    """

    def __init__(
        self,
        state: LaneState,
        loop: EventLoop,
        verifier: Verifier,
        joiner: Joiner,
        *,
        append: Callable[[TopicPartition, Outgoing | Span], None],
        rewind: Callable[[TopicPartition, int], None],
    ) -> None:
        """Create the object.

        Args:
            state: State of the lane.
            loop: Loop in whose thread the object is used.
            verifier: Compares a part of the copied batches with the target.
            joiner: Joiner of the loop.
            append: Appends a batch to a partition of the target.
            rewind: Makes the reader fetch a source partition again from an offset.
        """
        self._state, self._loop, self._verifier = state, loop, verifier
        self._joiner, self._append, self._rewind = joiner, append, rewind
        self.alone: dict[TopicPartition, SourceRecord] = {}
        """Last record that was sent in a batch of its own, by source partition."""

    def take(
        self,
        window: BatchWindow,
        found: Iterable[Found],
        held: HeldResponse,
        suspects: OneAtATime | None,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        """Copy the fetched batches of a partition.

        Args:
            window: Ledger of the partition.
            found: Fetched batches, joined batches and spans.
            held: Response that contains them.
            suspects: Search for rejected records, or None.
            changes: Changes of the flow to the topic's batches.
            singly: Whether Python joins no batches.

        Raises:
            CorruptBatch: A batch is damaged. Earlier batches were sent.
            UnreadableBatch: The records of a batch cannot be read. Earlier batches were sent.
        """
        for ones in map(_alone, found) if singly else self._together(found):
            as_one = len(ones) > 1 and self._pass_as_one(window, ones, changes)
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
                    self._pass(window, one, held, suspects, changes)
                if self._stopped(window, suspects):
                    break
            if self._stopped(window, suspects):
                return

    def takes_each(self, suspects: OneAtATime | None) -> bool:
        """Return True if batches must not be joined.

        That is the case during a search for rejected records, and if all batches are verified.
        """
        return suspects is not None or self._verifier.compares_all

    def _together(self, found: Iterable[Found]) -> Iterator[Sequence[Found]]:
        """Yield groups of batches. Python joins each group of several batches into one."""
        for ones in coalesced(found):
            # A rebuilt batch is not verified. If a verification is due, the first batch is sent by
            # itself.
            alone = int(self._verifier.due)
            for one in ones[:alone]:
                yield [one]
            if rest := ones[alone:]:
                yield rest

    def _stopped(self, window: BatchWindow, suspects: OneAtATime | None) -> bool:
        return window.at in self._state.problems or (suspects is not None and suspects.waiting)

    def _pass_as_one(
        self, window: BatchWindow, ones: Sequence[Found], changes: TopicChanges
    ) -> bool:
        """Copy small batches as one. Return False, without copying, if one of them is damaged."""
        batches = [one.batch for one in ones if not isinstance(one, Span)]
        try:
            made = rebuilt(
                batches,
                start=window.position,
                release=_nothing,
                most_bytes=_TOGETHER_BYTES,
                changes=changes,
            )
        except (CorruptBatch, UnreadableBatch):
            return False
        self._send_rebuilt(window, made)
        window.passed(batches[-1].last_offset + 1, batches[-1].leader_epoch)
        self._count_rebuilt(batches, Why.SMALL)
        return True

    def _pass(
        self,
        window: BatchWindow,
        one: Judged,
        held: HeldResponse,
        suspects: OneAtATime | None,
        changes: TopicChanges,
    ) -> None:
        batch, position = one.batch, window.position
        next_offset = batch.last_offset + 1
        epoch = batch.leader_epoch if batch.magic == 2 else -1
        why = one.why
        if why is None and not changes.nothing:
            why = _why(batch, changes)
        if one.passage is Passage.SKIP:
            window.passed(next_offset, epoch)
        elif suspects is not None and suspects.concerns(position, next_offset):
            few = suspects.together
            made = rebuilt(
                [batch], start=position, release=_nothing, most_records=few, changes=changes
            )
            suspects.put(made.outgoing)
            if few == 1:
                suspects.remember(stored_records(batch))
            self._state.copied.filtered += made.left_out
            if not suspects.waiting:
                window.passed(next_offset, epoch)
            self.send_suspects(window, suspects)
            self._count_rebuilt([batch], Why.REFUSED)
        elif why is None:
            held.use()
            self._send(window, Outgoing(batch, next_offset, held.release))
            self._state.copied.batches_copied += 1
            self._state.copied.bytes_copied += len(batch.data)
        else:
            made = rebuilt([batch], start=position, release=_nothing, changes=changes)
            self._send_rebuilt(window, made)
            window.passed(next_offset, epoch)
            self._count_rebuilt([batch], why)

    def _send_rebuilt(self, window: BatchWindow, made: Rebuilt) -> None:
        for outgoing in made.outgoing:
            self._send(window, outgoing)
        self._state.copied.filtered += made.left_out

    def _count_rebuilt(self, batches: Sequence[Batch], why: Why) -> None:
        self._state.copied.rebuild(len(batches), stored_bytes(batches), why)

    def _send(self, window: BatchWindow, outgoing: Outgoing | Span) -> None:
        if not window.in_flight:
            self._state.waiting_since_s[window.at] = self._loop.now_s()
        window.sent(outgoing)
        self._state.handed += outgoing.records
        self._append(window.target, outgoing)

    def send_suspects(self, window: BatchWindow, suspects: OneAtATime) -> None:
        """Send the next suspect records, if all earlier records are acknowledged."""
        if not window.in_flight and (outgoing := suspects.next()) is not None:
            if outgoing.records == 1:
                self.alone[window.at] = suspects.source_record(outgoing.first_offset)
            self._send(window, outgoing)
            self._rewind(window.at, window.position)


def _alone(one: Found) -> Sequence[Found]:
    return (one,)


def _why(batch: Batch, changes: TopicChanges) -> Why | None:
    """Return why the flow's changes require a rebuild, or None if the batch is copied unchanged."""
    if changes.recompress(batch):
        return Why.COMPRESSION
    return Why.CHANGED if changes.change(batch) else None


def _nothing() -> None:
    """Do nothing, because the new batch has its own memory."""
