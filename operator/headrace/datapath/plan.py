"""Plan of a copy: each batch is copied unchanged, rebuilt, joined with others or skipped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeGuard, TypeVar

from headrace.api import TopicPartition
from headrace.datapath.chunk import Found, HeldResponse, Judged, Passage, Run, Why
from headrace.datapath.lane import SourceRecord
from headrace.datapath.lane_state import LaneState
from headrace.datapath.ledger import Ledger
from headrace.datapath.partition import CopyState, OpenPartition
from headrace.datapath.rebuild import Rebuilt, TopicChanges, rebuilt
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
    """Yield groups of batches in order: small batches to join, or one batch that is not joined.

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
        *,
        append: Callable[[TopicPartition, Outgoing | Span], None],
        rewind: Callable[[TopicPartition, int, int], None],
    ) -> None:
        """Create the object.

        Args:
            state: State of the lane.
            loop: Loop in whose thread the object is used.
            verifier: Compares a part of the copied batches with the target.
            append: Appends a batch to a partition of the target.
            rewind: Makes the reader fetch a source partition from an offset. The last argument is
                the leader epoch of the offset before.
        """
        self._state, self._loop, self._verifier = state, loop, verifier
        self._append, self._rewind = append, rewind
        self.alone: dict[TopicPartition, SourceRecord] = {}
        """Last record that was sent in a batch of its own, by source partition."""

    def take(
        self,
        partition: OpenPartition,
        found: Iterable[Found],
        response: HeldResponse,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        """Copy the fetched batches of a partition.

        Args:
            partition: Partition of the source.
            found: Fetched batches, joined batches and spans.
            response: Response that contains them.
            changes: Changes of the flow to the topic's batches.
            singly: Whether each batch is copied by itself. Otherwise Python joins small batches.

        Raises:
            CorruptBatch: A batch is damaged. Earlier batches were sent.
            UnreadableBatch: The records of a batch cannot be read. Earlier batches were sent.
        """
        ledger = partition.ledger
        for ones in map(_alone, found) if singly else self._together(found):
            as_one = len(ones) > 1 and self._pass_as_one(partition, ones, changes)
            for one in () if as_one else ones:
                if isinstance(one, Run):
                    self._send(ledger, one.outgoing)
                    self._state.copied.rebuild(one.batches, one.size, Why.SMALL)
                elif isinstance(one, Span):
                    response.use()
                    self._send(ledger, one)
                    self._state.copied.batches_copied += one.row_count
                    self._state.copied.bytes_copied += one.size
                else:
                    self._pass(partition, one, response, changes)
                if _stopped(partition):
                    break
            if _stopped(partition):
                return

    def takes_each(self, partition: OpenPartition) -> bool:
        """Return True if batches must not be joined.

        That is the case during a search for rejected records, and if all batches are verified.
        """
        return partition.suspects is not None or self._verifier.compares_all

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

    def _pass_as_one(
        self, partition: OpenPartition, ones: Sequence[Found], changes: TopicChanges
    ) -> bool:
        """Copy small batches as one. Return False, without copying, if one of them is damaged."""
        batches = [one.batch for one in ones if not isinstance(one, Span)]
        try:
            made = rebuilt(
                batches,
                start=partition.ledger.position,
                release=_nothing,
                most_bytes=_TOGETHER_BYTES,
                changes=changes,
            )
        except (CorruptBatch, UnreadableBatch):
            return False
        self._send_rebuilt(partition, batches, made, Why.SMALL)
        return True

    def _pass(
        self, partition: OpenPartition, one: Judged, response: HeldResponse, changes: TopicChanges
    ) -> None:
        ledger, suspects = partition.ledger, partition.suspects
        batch, position = one.batch, ledger.position
        next_offset = batch.last_offset + 1
        why = one.why
        if why is None and not changes.nothing:
            why = _why(batch, changes)
        if one.passage is Passage.SKIP:
            ledger.passed(next_offset, _epoch(batch))
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
                ledger.passed(next_offset, _epoch(batch))
            self.send_suspects(partition)
            self._state.copied.rebuild(1, stored_bytes([batch]), Why.REFUSED)
        elif why is None:
            response.use()
            self._send(ledger, Outgoing(batch, next_offset, response.release))
            self._state.copied.batches_copied += 1
            self._state.copied.bytes_copied += len(batch.data)
        else:
            made = rebuilt([batch], start=position, release=_nothing, changes=changes)
            self._send_rebuilt(partition, [batch], made, why)

    def _send_rebuilt(
        self, partition: OpenPartition, batches: Sequence[Batch], made: Rebuilt, why: Why
    ) -> None:
        """Send what was made of ``batches``, and pass the records that were left out.

        Pass nothing if the append fails at once: the batches are read again.
        """
        for outgoing in made.outgoing:
            self._send(partition.ledger, outgoing)
            if partition.state is CopyState.STOPPED:
                return
        partition.ledger.passed(batches[-1].last_offset + 1, _epoch(batches[-1]))
        self._state.copied.filtered += made.left_out
        self._state.copied.rebuild(len(batches), stored_bytes(batches), why)

    def _send(self, ledger: Ledger, outgoing: Outgoing | Span) -> None:
        if not ledger.in_flight:
            self._state.waiting_since_s[ledger.at] = self._loop.now_s()
        ledger.sent(outgoing)
        self._state.handed += outgoing.records
        self._append(ledger.target, outgoing)

    def send_suspects(self, partition: OpenPartition) -> None:
        """Send the next suspect records, if all earlier records are acknowledged."""
        ledger, suspects = partition.ledger, partition.suspects
        if ledger.in_flight or suspects is None or (outgoing := suspects.next()) is None:
            return
        if outgoing.records == 1 and suspects.together == 1:
            self.alone[ledger.at] = suspects.source_record(outgoing.first_offset)
        self._send(ledger, outgoing)
        self._rewind(ledger.at, ledger.position, ledger.leader_epoch)

    def drop_suspects(self, partition: OpenPartition) -> None:
        """Drop the queued suspect records, and read them again when the lane reads next."""
        ledger, suspects = partition.ledger, partition.suspects
        if suspects is not None:
            suspects.drop()
            self._rewind(ledger.at, ledger.position, ledger.leader_epoch)


def _stopped(partition: OpenPartition) -> bool:
    return partition.state is CopyState.STOPPED or partition.searching


def _alone(one: Found) -> Sequence[Found]:
    return (one,)


def _epoch(batch: Batch) -> int:
    return batch.leader_epoch if batch.magic == 2 else -1


def _why(batch: Batch, changes: TopicChanges) -> Why | None:
    """Return why the flow's changes require a rebuild, or None if the batch is copied unchanged."""
    if changes.recompress(batch):
        return Why.COMPRESSION
    return Why.CHANGED if changes.change(batch) else None


def _nothing() -> None:
    """Do nothing, because the new batch has its own memory."""
