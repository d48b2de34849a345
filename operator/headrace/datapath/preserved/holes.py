"""Holes between batches, which are filled by aborted transactions.

An aborted transaction writes one marker to each of its partitions, and a marker fills one offset.
Holes of several partitions share transactions. Several transactional ids fill several offsets of a
hole at the same time. With ``offsets.holes: AbortedFillers``, a transaction fills many offsets with
empty records before its marker.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from headrace.api import TopicPartition
from headrace.datapath.preserved.owner import Closer, TaskProducers
from headrace.datapath.preserved.plan import Hole
from headrace.datapath.spans import Damaged
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    Batch,
    BatchWriter,
    ClusterClient,
    ProduceResult,
    ProducerIdentity,
    Reply,
    Transactions,
    describe_producers,
    encoded,
    list_offsets,
    log_ends,
    produce_call,
    sequence_after,
    stamped,
    start,
)

REBUILD = "have it copied again: `headrace flow rebuild`"
"""End of an error message that recommends to rebuild the copy."""


class WrongOffset(Fatal):
    """A record was appended at another offset than on the source.

    Another client writes to the partition.
    """

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """Create the error; ``offset`` is the first one that differs from the source."""
        super().__init__(message)
        self.at, self.offset = at, offset


def appended_elsewhere(
    at: TopicPartition, name: str, offset: int, base_offset: int, *, what: str = ""
) -> HeadraceError:
    """Return the error for a batch that was not appended at ``offset``.

    Args:
        at: Partition of the target.
        name: Name of the target cluster.
        offset: Expected offset.
        base_offset: Offset in the broker's response.
        what: Description of the batch. By default it contains source records.
    """
    what = what or f"what the source holds at offset {offset}"
    if base_offset < offset:
        # No log accepts data before its end.
        return Retriable(
            f"{name} took {what} for a repetition of what {at} holds at {base_offset}: no log "
            "takes records before its end (possible causes: an earlier owner appended meanwhile, "
            "or an unclean election); the log is read again"
        )
    return WrongOffset(
        at,
        offset,
        f"{what} was appended to {at} on {name} at {base_offset}: {_offsets_differ(offset)}",
    )


def _offsets_differ(first: int) -> str:
    return (
        f"from {first} on, offsets differ from the source's. Another client writes there, or "
        f"replicas failed and brokers wrote a marker twice; stop such a client, then {REBUILD}"
    )


# Filler of offsets by aborted transactions: empty records, followed by a marker. Read-committed
# consumers see neither.

BATCH_RECORDS = 10_000
"""Maximum number of empty records in a batch. With zstd they need about 0.9 bytes an offset."""
_COORDINATOR_S = 15.0
_ANSWER_TIMEOUT_S = 30.0
_OLD_MS = 0
"""Timestamp of the empty records in ms, if the target accepts it. Records this old do not delay the
deletion of their segment, and searches by time do not find them."""


class Filler:
    """Fills holes with one transactional id, in its owner's epoch.

    Call it in the target loop's thread.
    """

    def __init__(
        self,
        target: ClusterClient,
        transactions: Transactions,
        identity: ProducerIdentity,
        damaged: Damaged = lambda _, __: None,
    ) -> None:
        self._target, self._transactions, self._damaged = target, transactions, damaged
        self._identity = replace(identity, transactional=True)
        self._sequences: dict[TopicPartition, int] = {}
        """Next sequence of partitions for which it is known."""
        self._timestamp_ms = _OLD_MS

    async def fill(
        self, holes: Mapping[TopicPartition, Hole]
    ) -> dict[TopicPartition, HeadraceError]:
        """Fill holes by one transaction, whose markers take the last offset of each hole.

        Several fillers may fill single offsets of a partition at the same time. Return the errors
        of holes that failed, which may be filled in part.

        Raises:
            HeadraceError: The transaction could not begin, so no hole is filled.
        """
        await self._transactions.add_partitions(
            self._identity, holes.keys(), timeout_s=_COORDINATOR_S
        )
        sent = {at: start(self._append(at, hole)) for at, hole in holes.items() if hole.offsets > 1}
        failed: dict[TopicPartition, HeadraceError] = {}
        for at, reply in sent.items():
            try:
                await reply
            except HeadraceError as error:
                self._sequences.pop(at, None)
                failed[at] = error
        try:  # an open transaction would hide the partitions' ends
            await self._transactions.end(self._identity, commit=False, timeout_s=_COORDINATOR_S)
        except HeadraceError as error:
            return dict.fromkeys(holes, error) | failed
        return failed

    async def _append(self, at: TopicPartition, hole: Hole) -> None:
        """Append empty records at all offsets of a hole except the last."""
        for piece in Hole(hole.first, hole.next - 1).pieces(BATCH_RECORDS):
            sequence = await self._next_sequence(at)
            await self._send(at, piece, sequence)
            self._sequences[at] = sequence_after(sequence, piece.offsets)

    async def _next_sequence(self, at: TopicPartition) -> int:
        """Return the next sequence: 0 unless this owner has appended to the partition before."""
        if (known := self._sequences.get(at)) is not None:
            return known
        for one in (await describe_producers(self._target, [at])).all()[at]:
            written = one.producer_id, one.producer_epoch
            if written == (self._identity.producer_id, self._identity.epoch):
                return 0 if one.last_sequence < 0 else sequence_after(one.last_sequence, 1)
        return 0

    async def _send(
        self, at: TopicPartition, piece: Hole, sequence: int, doubted: int | None = None
    ) -> None:
        """Append a batch of empty records.

        An unexpected offset in the response is believed if a second response, to the same batch,
        contains it too: no checksum covers it. ``doubted`` is the offset in the first response.
        """
        name, offset = self._target.name, piece.first
        led = self._target.view.leadership(at)
        if led is None:
            raise Retriable(f"{at} on {name} has no leader")
        connection = await self._target.connection(led.leader, f"append {self._transactions.id}")
        sent = stamped(_records(piece.offsets, self._timestamp_ms), self._identity, sequence)
        call = produce_call(
            {at.topic: {at.partition: sent}}, transactional_id=self._transactions.id
        )
        produced = await connection.send(call, timeout_s=_ANSWER_TIMEOUT_S)
        answer = produced.answers.get(at)
        if answer is None:
            raise Retriable(f"{name} gave no answer for {at}")
        if answer.name == "INVALID_TIMESTAMP" and self._timestamp_ms == _OLD_MS:
            # The target limits the age of timestamps (message.timestamp.before.max.ms). With the
            # current time, the records stay until their segment is deleted. No consumer sees them.
            self._timestamp_ms = int(time.time() * 1000)
            await self._send(at, piece, sequence)
            return
        if answer.outcome is not ProduceResult.APPENDED:
            error = answer.error(f"fill offsets of {at} on {name} from {offset} on")
            if answer.name == "INVALID_TXN_STATE":  # its coordinator has ended the transaction
                raise Retriable(str(error))
            raise _as_retriable(answer.outcome, error)
        appended_at = answer.base_offset
        if doubted not in (None, appended_at):
            self._damaged(at, f"a batch was appended at offset {doubted}, then at {appended_at}")
        if appended_at not in (offset, doubted):
            await self._send(at, piece, sequence, appended_at)
        elif appended_at != offset:
            raise appended_elsewhere(
                at, name, offset, appended_at, what=f"what fills offset {offset}"
            )


@lru_cache(maxsize=64)  # holes can have any size
def _records(count: int, timestamp_ms: int) -> Batch:
    """Return a batch of empty records with keys, because compacted topics require keys."""
    writer = BatchWriter("zstd")
    for number in range(count):
        writer.add(encoded(number, timestamp_ms, b"", None))
    return writer.finish()


def _as_retriable(outcome: ProduceResult, error: HeadraceError) -> HeadraceError:
    """Return ``Retriable`` if another owner took the partition over, or if its leader moved.

    The partition's end then shows how far it is filled.
    """
    if outcome in {ProduceResult.OUT_OF_ORDER, ProduceResult.INDEFINITE, ProduceResult.AGAIN}:
        return Retriable(str(error))
    return error


_READ_TIMEOUT_S = 5.0
"""Time in seconds from the end of a transaction until its marker is below the high watermark."""
_LEADER_S = 5.0
_POLL_S = 0.002


Filled = Callable[[TopicPartition, HeadraceError | None], None]
"""Called once for each ``fill``. ``Retriable`` means that the hole may be filled in part."""


@dataclass
class _Open:
    hole: Hole
    first: int
    """First offset that is not filled."""
    closer: Closer | None
    """Closer that writes the hole's first marker; None if that is done or not needed."""
    compared: bool = False
    """Whether the log's end was compared with the hole. The closer waits for that."""

    @property
    def left(self) -> int:
        """Number of offsets that are not filled."""
        return self.hole.next - self.first


class Holes:
    """Fills holes for one owner. Call it in the loop's thread of ``cluster``, the target."""

    def __init__(
        self,
        cluster: ClusterClient,
        owner: TaskProducers,
        filled: Filled,
        *,
        damaged: Damaged = lambda _, __: None,
        with_records: bool = False,
    ) -> None:
        """Create the object.

        Args:
            cluster: The target.
            owner: Producers of the task.
            filled: Receives the outcome of each ``fill``.
            damaged: Receives damaged responses of the target.
            with_records: Whether holes that need more than one round of markers are filled with
                empty records.
        """
        self._cluster, self._filled, self._with_records = cluster, filled, with_records
        writers = zip(owner.transactions(cluster), owner.identities, strict=True)
        self._fillers = [Filler(cluster, *one, damaged) for one in writers]
        self._closing: dict[Closer, Filler] = {}
        self._open: dict[TopicPartition, _Open] = {}
        self._running = self._stopping = self._closed = False
        self._singly = False
        """Whether a round fills one partition for each id. It is set after a coordinator has
        rejected a request without naming the partition."""

    def fill(self, at: TopicPartition, hole: Hole, closer: Closer | None = None) -> None:
        """Fill a hole at the end of a partition, to which this owner has nothing in flight.

        ``closer`` writes the first marker before all others.
        """
        self._open[at] = _Open(hole, hole.first, closer)
        if not self._running and not self._closed:
            self._running = True
            start(self._run()).then(self._ended)

    def stop(self) -> None:
        """Begin no more transactions. Holes that are filled only in part fail."""
        self._stopping = True

    def close(self) -> None:
        """Stop filling at once. An open transaction may remain; it contains no data."""
        self._closed = True

    async def _run(self) -> None:
        self._singly = False
        while self._open and not self._closed:
            for at, error in (await self._grown()).items():
                self._end(at, error)
            lost = await self._round()
            for at, error in lost.items():
                self._end(at, error)
            done = {at: one.hole for at, one in self._open.items() if not one.left}
            if done:
                await self._read(done)
            if self._stopping:
                for at in list(self._open):
                    self._end(at, Retriable(f"{at} is released while a hole of it is filled"))

    async def _grown(self) -> dict[TopicPartition, HeadraceError]:
        """Return errors of partitions with a closer to which an earlier owner has appended data.

        The earlier owner's data are at their correct offsets. A marker after them would be at a
        wrong one.
        """
        closing = {at: one for at, one in self._open.items() if one.closer is not None}
        if not closing:
            return {}
        first = {at: one.hole.first for at, one in closing.items()}
        ends = await log_ends(self._cluster, first, timeout_s=_LEADER_S)
        failed = dict(ends.failed)
        for at, end in ends.found.items():
            closing[at].compared = True
            if end.end_offset != first[at]:
                failed[at] = Retriable(
                    f"{at} on {self._cluster.name} ended at {first[at]}, and ends at "
                    f"{end.end_offset} now"
                )
        return failed

    async def _round(self) -> dict[TopicPartition, HeadraceError]:
        """Run one transaction of each needed id. Return the errors of holes that failed."""
        sent: list[tuple[dict[TopicPartition, Hole], Reply[dict[TopicPartition, HeadraceError]]]]
        sent = []
        for filler, wanted in self._wanted():
            pieces = dict(islice(wanted.items(), 1)) if self._singly else wanted
            if pieces:
                sent.append((pieces, start(filler.fill(pieces))))
        failed: dict[TopicPartition, HeadraceError] = {}
        for pieces, reply in sent:
            try:
                failed |= await reply
            except HeadraceError as error:
                if isinstance(error, Retriable) or len(pieces) == 1:
                    failed.update((at, error) for at in pieces)
                else:
                    self._singly = True
            else:
                for at, piece in pieces.items():
                    self._open[at].first += piece.offsets
                    self._open[at].closer = None
        return failed

    def _wanted(self) -> Iterator[tuple[Filler, dict[TopicPartition, Hole]]]:
        """Yield each filler with the holes that it fills next."""
        closing: dict[Closer, dict[TopicPartition, Hole]] = {}
        for at, one in self._open.items():
            if one.closer is not None and one.compared:
                closing.setdefault(one.closer, {})[at] = Hole(one.first, one.first + 1)
        for closer, holes in closing.items():
            if closer not in self._closing:
                transactions = Transactions(self._cluster, closer.transactional_id)
                self._closing[closer] = Filler(self._cluster, transactions, closer.identity)
            yield self._closing[closer], holes
        for number, filler in enumerate(self._fillers):
            pieces = {at: self._piece(one, number) for at, one in self._open.items()}
            yield filler, {at: piece for at, piece in pieces.items() if piece is not None}

    def _piece(self, one: _Open, number: int) -> Hole | None:
        """Return the part of a hole that filler ``number`` fills next, or None."""
        if one.closer is not None or one.left <= number:
            return None
        if not self._with_records or one.left <= len(self._fillers):
            return Hole(one.first + number, one.first + number + 1)
        return None if number else Hole(one.first, min(one.hole.next, one.first + BATCH_RECORDS))

    async def _read(self, done: dict[TopicPartition, Hole]) -> None:
        """Wait until the high watermarks have passed the markers, and report the holes as filled.

        A coordinator's response does not guarantee that the markers are written, and a leader may
        lose the end of its log.
        """
        loop = self._cluster.loop
        deadline_s = loop.now_s() + _READ_TIMEOUT_S
        waiting = dict(done)
        while waiting and not self._closed:
            listed = await list_offsets(self._cluster, waiting, LATEST, timeout_s=_LEADER_S)
            for at, error in listed.failed.items():
                del waiting[at]
                self._end(at, error)
            for at, found in listed.found.items():
                if found.offset >= waiting[at].next:
                    hole = waiting.pop(at)
                    self._end(at, self._checked(at, hole, found.offset))
            if waiting and loop.now_s() > deadline_s:
                for at in waiting:
                    name = self._cluster.name
                    self._end(at, Retriable(f"markers in {at} on {name} did not come in time"))
                return
            if waiting:
                await loop.sleep(_POLL_S)

    def _checked(self, at: TopicPartition, hole: Hole, end: int) -> WrongOffset | None:
        if end == hole.next:
            return None
        return WrongOffset(
            at,
            hole.first,
            f"{at} on {self._cluster.name} ends at offset {end} after the markers, not at "
            f"{hole.next}: {_offsets_differ(hole.first)}",
        )

    def _end(self, at: TopicPartition, error: HeadraceError | None) -> None:
        self._open.pop(at, None)
        self._filled(at, error)

    def _ended(self, reply: Reply[None]) -> None:
        self._running = False
        if (error := reply.error) is None:
            return
        if not isinstance(error, HeadraceError):
            raise error
        for at in list(self._open):
            self._end(at, error)
