"""Batches that wait together, made one in memory that is used again."""

from collections.abc import Iterator, Sequence
from functools import partial

from headrace.kafka.wire import Batch, Buffers, join_helper, joined, joined_bytes
from headrace.movers.batch.gate import Judged
from headrace.movers.batch.memory import Memory
from headrace.movers.batch.outgoing import Outgoing

TOGETHER_BYTES = 240 << 10
"""Of records that become one batch: with what they grow by, a buffer of 256 KiB. More gains nothing
that can be measured, and topics that take less than brokers do by default are few."""


class Joiner:
    """Of one lane, in the thread of its loop."""

    def __init__(self, buffers: Buffers, memory: Memory) -> None:
        self._buffers, self._memory = buffers, memory
        self.helper = join_helper()
        """In C; ``None``: there is none here, and ``join`` does nothing."""

    def join(self, batches: Sequence[Batch]) -> Outgoing | None:
        """They follow each other, and are as ``joined`` wants them; ``None``: one is damaged."""
        if self.helper is None:
            return None
        buffer = self._buffers.take(joined_bytes(batches))
        if (batch := joined(self.helper, batches, buffer)) is None:
            self._buffers.give(buffer)
            return None
        self._memory.take(len(buffer))
        release = partial(self._release, buffer)
        return Outgoing(batch, batch.last_offset + 1, release, rebuilt=True)

    def _release(self, buffer: bytearray) -> None:
        self._buffers.give(buffer)
        self._memory.give(len(buffer))


def in_pieces(ones: Sequence[Judged], most_bytes: int) -> Iterator[Sequence[Judged]]:
    """In order, each of at most so many bytes of records, or a single one."""
    start = size = 0
    for index, one in enumerate(ones):
        payload = one.batch.payload_bytes
        if index > start and size + payload > most_bytes:
            yield ones[start:index]
            start, size = index, 0
        size += payload
    yield ones[start:]
