"""The offsets before the source's first one: filled with records that are aborted, then deleted.

Aborted, so that a consumer of committed records that is there already sees none of them.
"""

import time
from contextlib import suppress
from math import inf

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    Batch,
    BatchWriter,
    Cluster,
    Outcome,
    ProducerIdentity,
    Transactions,
    delete_records,
    describe_producers,
    encoded,
    produce_call,
    sequence_after,
    stamped,
)
from headrace.movers.lane import Filling
from headrace.movers.preserved.ends import End, not_replicated
from headrace.movers.preserved.owner import Owner
from headrace.movers.preserved.wrong_offset import REBUILD

_BATCH_RECORDS = 10_000
"""Empty records of a batch: with zstd some 0.9 bytes an offset."""
_BATCHES = 100
"""Of a transaction: a million offsets, a second or two."""
_COORDINATOR_S = 15.0
_ANSWER_WITHIN_S = 30.0
_OLD_MS = 0
"""Of the records, if the target allows it: then their segment is deleted soon."""


async def pad(
    target: Cluster,
    owner: Owner,
    at: TopicPartition,
    end: End,
    first: int,
    *,
    until_s: float = inf,
) -> None:
    """Fill from the end of an empty partition to ``first``, and delete what was filled. Raises
    ``Filling`` once the loop's clock is past ``until_s``.

    Raises ``Retriable`` where it is to be tried again from the partition's end, whatever that is
    then: it never lies behind ``first``.
    """
    writing = _Padding(target, Transactions(target, owner.padding_id), owner.padding, at)
    sequence = await writing.next_sequence()
    offset = end.offset
    while offset < first:
        offset, sequence = await writing.transaction(offset, first, sequence)
        if offset < first and target.loop.now_s() > until_s:
            raise Filling(
                at,
                offset,
                f"{at} on {target.name} is filled up to offset {first}, where its source begins: "
                f"{offset} so far",
            )
    # Leaders delete up to the high watermark only.
    for error in (await not_replicated(target, {at: first})).values():
        raise error
    for error in (await delete_records(target, {at: first})).failed.values():
        raise error


class _Padding:
    def __init__(
        self,
        target: Cluster,
        transactions: Transactions,
        identity: ProducerIdentity,
        at: TopicPartition,
    ) -> None:
        self._target, self._transactions, self._at = target, transactions, at
        self._identity = ProducerIdentity(identity.producer_id, identity.epoch, transactional=True)
        self._timestamp_ms = _OLD_MS
        self._made: dict[int, Batch] = {}

    async def next_sequence(self) -> int:
        """0, unless this owner was here before."""
        states = (await describe_producers(self._target, [self._at])).all()[self._at]
        for one in states:
            known = one.producer_id, one.producer_epoch
            if known == (self._identity.producer_id, self._identity.epoch):
                return 0 if one.last_sequence < 0 else sequence_after(one.last_sequence, 1)
        return 0

    async def transaction(self, offset: int, first: int, sequence: int) -> tuple[int, int]:
        """Records, and its marker: the end, and the next sequence."""
        await self._transactions.add_partitions(
            self._identity, [self._at], timeout_s=_COORDINATOR_S
        )
        try:
            for _ in range(_BATCHES):
                count = min(_BATCH_RECORDS, first - offset - 1)  # the marker takes one
                if not count:
                    break
                await self._append(count, offset, sequence)
                offset += count
                sequence = sequence_after(sequence, count)
        except HeadraceError:
            # While it is open, nobody can say where the partition ends.
            with suppress(HeadraceError):
                await self._end()
            raise
        await self._end()
        return offset + 1, sequence

    async def _end(self) -> None:
        await self._transactions.end(self._identity, commit=False, timeout_s=_COORDINATOR_S)

    def _fillers(self, count: int) -> Batch:
        if (batch := self._made.get(count)) is None:
            writer = BatchWriter("zstd")
            for number in range(count):
                writer.add(encoded(number, self._timestamp_ms, b"", None))
            batch = self._made[count] = writer.finish()
        return batch

    async def _append(self, count: int, offset: int, sequence: int) -> None:
        at, name = self._at, self._target.name
        led = self._target.view.leadership(at)
        if led is None:
            raise Retriable(f"{at} on {name} has no leader")
        connection = await self._target.connection(led.leader, f"append {self._transactions.id}")
        sent = stamped(self._fillers(count), self._identity, sequence)
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
            self._timestamp_ms, self._made = int(time.time() * 1000), {}
            await self._append(count, offset, sequence)
            return
        if answer.outcome is not Outcome.APPENDED:
            error = answer.error(f"fill {at} on {name} up to the source's first offset")
            if answer.name == "INVALID_TXN_STATE":  # its coordinator has ended the transaction
                raise Retriable(str(error))
            raise _as_retriable(answer.outcome, error)
        if answer.base_offset != offset:
            raise Fatal(
                f"what fills {at} on {name} came to offset {answer.base_offset} instead of "
                f"{offset}: another client writes there; stop it, then {REBUILD}"
            )


def _as_retriable(outcome: Outcome, error: HeadraceError) -> HeadraceError:
    """Another owner took it over, or the partition moved: the end says how far it is."""
    if outcome in {Outcome.OUT_OF_ORDER, Outcome.INDEFINITE, Outcome.AGAIN}:
        return Retriable(str(error))
    return error
