"""Batches that wait together, made one in memory that is used again."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from headrace.kafka.wire import (
    Batch,
    Buffers,
    CorruptBatch,
    Helper,
    join_helper,
    joined,
    joined_bytes,
    stored_records,
)
from headrace.movers.batch.gate import Judged
from headrace.movers.batch.memory import Memory
from headrace.movers.batch.outgoing import Outgoing

TOGETHER_BYTES = 240 << 10
"""Of records that become one batch: with what they grow by, a buffer of 256 KiB. More gains nothing
that can be measured, and topics that take less than brokers do by default are few."""
_CHECKED_EVERY_S = 1.0
"""Of all lanes together, as they have one helper: it takes some 5 us of Python for each record."""


class Misjoined(Exception):
    """The helper made other records of batches than they have."""


class Joiner:
    """Of all lanes of a loop, in its thread."""

    def __init__(self, buffers: Buffers, memory: Memory, now_s: Callable[[], float]) -> None:
        self._buffers, self._memory, self._now_s = buffers, memory, now_s
        self._check_s = float("-inf")
        self._failed = False

    @property
    def helper(self) -> Helper | None:
        """In C; ``None``: there is none here, or none to be trusted, and ``join`` does nothing."""
        return None if self._failed else join_helper()

    def join(self, batches: Sequence[Batch], *, check: bool) -> Outgoing | None:
        """They follow each other, and are as ``joined`` wants them; ``None``: one is damaged.

        With ``check`` the first one, and then one a second, is compared with ``batches`` record by
        record. Raises ``Misjoined``, and from then on there is no helper.
        """
        if (helper := self.helper) is None:
            return None
        buffer = self._buffers.take(joined_bytes(batches))
        if (batch := joined(helper, batches, buffer)) is None:
            self._buffers.give(buffer)
            return None
        if check and self._now_s() >= self._check_s:
            self._check_s = self._now_s() + _CHECKED_EVERY_S
            if not _same_records(batch, batches):
                self._failed = True
                self._buffers.give(buffer)
                raise Misjoined
        self._memory.take(len(buffer))
        return Outgoing(batch, batch.last_offset + 1, partial(self._release, buffer))

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


def _same_records(one: Batch, batches: Sequence[Batch]) -> bool:
    try:
        wanted = [record for batch in batches for record in stored_records(batch)]
        found = list(stored_records(one))
    except CorruptBatch:  # the helper refuses what Python cannot read
        return False
    return found == wanted and one.max_timestamp == max(record.timestamp_ms for record in wanted)
