"""Delivery mode of a lane with preserved offsets."""

from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial

from headrace.api import TopicPartition
from headrace.api.offsets import GapPolicy
from headrace.datapath.chunk import Found, HeldResponse, Judged, Passage, Run, Why
from headrace.datapath.delivery import LaneParts
from headrace.datapath.lane import CopyFrom
from headrace.datapath.ledger import Ledger
from headrace.datapath.partition import CopyState, OpenPartition
from headrace.datapath.preserved.holes import BATCH_RECORDS, REBUILD, WrongOffset
from headrace.datapath.preserved.owner import Opening, Openings, TaskProducers
from headrace.datapath.preserved.plan import Append, Operation, planned
from headrace.datapath.preserved.writer import Writer
from headrace.datapath.rebuild import TopicChanges
from headrace.datapath.spans import Outgoing, Span
from headrace.datapath.verify import BatchComparison
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import Reply, start
from headrace.replication import OwnerProducer

_MAX_WAITING = 64
"""Number of waiting operations of a partition at which the lane reads no more of its records."""


class Preserving:
    """Mode in which each record keeps its offset. One writer has taken over all partitions."""

    copies_spans = False
    transactions = None

    def __init__(self, openings: Openings, parts: LaneParts) -> None:
        self._openings, self._parts, self._state = openings, parts, parts.state
        self._identity: OwnerProducer | None = None
        self._owner: TaskProducers | None = None
        self._writer: Writer | None = None

    @property
    def sending(self) -> Writer | None:
        return self._writer

    async def begin(self) -> None:
        """Do nothing, because the producer ids arrive with the partitions."""

    def open(self, target: TopicPartition, position: CopyFrom) -> Callable[[], None]:
        if position.writer is None:
            raise Fatal(f"internal error: {target} would be copied without a transactional id")
        opening = self._openings.begin(position.writer, target)
        if position.offset != opening.end.offset:
            raise Fatal(
                f"internal error: {target} would be copied from {position.offset} to "
                f"{opening.end.offset}"
            )
        self._identity = position.writer
        return partial(self._write_from, target, opening)

    def _write_from(self, target: TopicPartition, opening: Opening) -> None:
        parts = self._parts
        if self._writer is None or self._owner is not opening.owner:
            if self._writer is not None:
                self._writer.close()
            self._owner = opening.owner
            self._writer = Writer(
                parts.outlet.leaders,
                opening.owner,
                self._written,
                parts.failed,
                first=self._check_first,
                waiting=parts.waiting,
                damaged=parts.damaged,
                with_records=parts.resources.holes is GapPolicy.ABORTED_FILLERS,
            )
        self._writer.begin(target, opening.end, opening.closer)
        parts.reader.wake()

    def readable(self, ats: Set[TopicPartition]) -> Set[TopicPartition]:
        partitions = self._state.partitions
        return {
            at
            for at in ats
            if (partition := partitions.get(at)) is not None
            and self._waits(partition.ledger.target) < _MAX_WAITING
        }

    def _waits(self, target: TopicPartition) -> int:
        return 0 if self._writer is None else self._writer.waits(target)

    def take(
        self,
        partition: OpenPartition,
        found: Iterable[Found],
        response: HeldResponse,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        """Write batches at their offsets, and fill the holes. ``changes`` are not possible here."""
        operations = planned(
            self._counted(found),
            start=partition.ledger.position,
            release=response.release,
            copies=self._parts.resources.holes is GapPolicy.COPIES,
        )
        for operation in operations:
            if isinstance(operation, Append) and not operation.rebuilt:
                response.use()
            self._write(partition, operation)
            if partition.state is CopyState.STOPPED:
                return

    def _write(self, partition: OpenPartition, operation: Operation) -> None:
        state, ledger = self._state, partition.ledger
        if not ledger.in_flight:
            state.waiting_since_s[ledger.at] = self._parts.loop.now_s()
        if isinstance(operation, Append):
            ledger.sent(operation.outgoing)
            state.handed += operation.outgoing.records
            self._give(ledger, operation)
            return
        resources = self._parts.resources
        filled = resources.holes is GapPolicy.ABORTED_FILLERS
        marked_offsets = resources.settings.marked_offsets
        for piece in operation.pieces(BATCH_RECORDS if filled else marked_offsets):
            ledger.skipping(piece.next, piece.leader_epoch)
            self._give(ledger, piece)
            if partition.state is CopyState.STOPPED:
                return

    def _give(self, ledger: Ledger, operation: Operation) -> None:
        assert self._writer is not None
        self._writer.write(ledger.target, operation)

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

    def append(self, target: TopicPartition, outgoing: Outgoing | Span) -> None:
        """Refuse batches without a planned offset: ``take`` writes them with one."""
        raise Fatal(f"internal error: a batch of {target} has no planned offset")

    def drain(self, at: TopicPartition) -> None:
        """Drop waiting data, so that a partition need not wait until a long hole is filled."""
        with self._state.lock:
            partition = self._state.partitions.get(at)
            if partition is None or self._writer is None:
                return
            ledger = partition.ledger
            dropped = self._writer.leave(ledger.target)
            sizes = [one.outgoing.payload_bytes for one in dropped if isinstance(one, Append)]
            ledger.unsent(len(dropped), sum(sizes))
            self._parts.reader.rewind(at, ledger.position, ledger.leader_epoch)

    def forget(self, target: TopicPartition) -> None:
        if self._writer is not None:
            self._writer.forget(target)

    def retire(self) -> None:
        if self._identity is not None:
            self._openings.close(self._identity)

    async def abort(self) -> None:
        """Do nothing: the transactions of holes contain no data."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    # Callbacks of the writer

    def _written(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        if outgoing is None:
            self._parts.filled(at, next_offset)
        else:
            self._parts.acknowledged(at, outgoing, next_offset - outgoing.records)

    def _check_first(
        self, at: TopicPartition, outgoing: Outgoing, done: Callable[[HeadraceError | None], None]
    ) -> None:
        offset = outgoing.first_offset

        def found(reply: Reply[tuple[BatchComparison, str]]) -> None:
            verdict, why = reply.result()
            name = self._parts.outlet.cluster.name
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

        start(self._parts.verifier.verdict(at, offset, outgoing.batch)).then(found)
