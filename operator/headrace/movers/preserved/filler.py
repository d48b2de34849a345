"""Filler of offsets by aborted transactions: empty records, followed by a marker.

Consumers of committed records see neither.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    Batch,
    BatchWriter,
    ClusterClient,
    ProduceResult,
    ProducerIdentity,
    Transactions,
    describe_producers,
    encoded,
    produce_call,
    sequence_after,
    stamped,
    start,
)
from headrace.movers.preserved.plan import Hole
from headrace.movers.preserved.wrong_offset import appended_elsewhere

BATCH_RECORDS = 10_000
"""Empty records of a batch, at most: with zstd some 0.9 bytes an offset."""
_COORDINATOR_S = 15.0
_ANSWER_WITHIN_S = 30.0
_OLD_MS = 0
"""Timestamp of the records if the target allows it. Their segment is then not kept for them, and
searches by time do not find them.
"""


class Filler:
    """Filler with one transactional id in its owner's epoch, in the target loop's thread."""

    def __init__(
        self, target: ClusterClient, transactions: Transactions, identity: ProducerIdentity
    ) -> None:
        self._target, self._transactions = target, transactions
        self._identity = replace(identity, transactional=True)
        self._sequences: dict[TopicPartition, int] = {}
        """Next sequence where everything sent before is acknowledged."""
        self._timestamp_ms = _OLD_MS

    async def fill(
        self, holes: Mapping[TopicPartition, Hole]
    ) -> dict[TopicPartition, HeadraceError]:
        """Fill gaps by one transaction, whose markers have the last offset of each gap.

        A gap of a single offset may be filled by others at the same time. A gap that failed may be
        filled in part. Raise ``HeadraceError`` if nothing was begun: either all partitions of a
        request are added, or none.
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
        try:  # always: while it is open, the ends of the partitions are unknown
            await self._transactions.end(self._identity, commit=False, timeout_s=_COORDINATOR_S)
        except HeadraceError as error:
            return dict.fromkeys(holes, error) | failed
        return failed

    async def _append(self, at: TopicPartition, hole: Hole) -> None:
        """All but its last offset."""
        for piece in Hole(hole.first, hole.next - 1).pieces(BATCH_RECORDS):
            sequence = await self._next_sequence(at)
            await self._send(at, piece, sequence)
            self._sequences[at] = sequence_after(sequence, piece.offsets)

    async def _next_sequence(self, at: TopicPartition) -> int:
        """0, unless this owner was here before."""
        if (known := self._sequences.get(at)) is not None:
            return known
        for one in (await describe_producers(self._target, [at])).all()[at]:
            written = one.producer_id, one.producer_epoch
            if written == (self._identity.producer_id, self._identity.epoch):
                return 0 if one.last_sequence < 0 else sequence_after(one.last_sequence, 1)
        return 0

    async def _send(self, at: TopicPartition, piece: Hole, sequence: int) -> None:
        name, offset = self._target.name, piece.first
        led = self._target.view.leadership(at)
        if led is None:
            raise Retriable(f"{at} on {name} has no leader")
        connection = await self._target.connection(led.leader, f"append {self._transactions.id}")
        sent = stamped(_records(piece.offsets, self._timestamp_ms), self._identity, sequence)
        call = produce_call(
            {at.topic: {at.partition: sent}}, transactional_id=self._transactions.id
        )
        produced = await connection.send(call, timeout_s=_ANSWER_WITHIN_S)
        answer = produced.answers.get(at)
        if answer is None:
            raise Retriable(f"{name} gave no answer for {at}")
        if answer.name == "INVALID_TIMESTAMP" and self._timestamp_ms == _OLD_MS:
            # message.timestamp.before.max.ms: they stay until their segment goes, and nobody sees
            # them.
            self._timestamp_ms = int(time.time() * 1000)
            await self._send(at, piece, sequence)
            return
        if answer.outcome is not ProduceResult.APPENDED:
            error = answer.error(f"fill offsets of {at} on {name} from {offset} on")
            if answer.name == "INVALID_TXN_STATE":  # its coordinator has ended the transaction
                raise Retriable(str(error))
            raise _as_retriable(answer.outcome, error)
        if answer.base_offset != offset:
            raise appended_elsewhere(
                at, name, offset, answer.base_offset, what=f"what fills offset {offset}"
            )


@lru_cache(maxsize=64)  # holes have as many sizes as they like
def _records(count: int, timestamp_ms: int) -> Batch:
    """With a key each: compacted topics take no other."""
    writer = BatchWriter("zstd")
    for number in range(count):
        writer.add(encoded(number, timestamp_ms, b"", None))
    return writer.finish()


def _as_retriable(outcome: ProduceResult, error: HeadraceError) -> HeadraceError:
    """Return ``Retriable`` if another owner took the partition over, or if it moved.

    The partition's end then says how far it is filled.
    """
    if outcome in {ProduceResult.OUT_OF_ORDER, ProduceResult.INDEFINITE, ProduceResult.AGAIN}:
        return Retriable(str(error))
    return error
