"""Batches that wait together, made one in memory that is used again."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headrace.kafka.wire import (
    Batch,
    Buffers,
    CorruptBatch,
    Helper,
    Joined,
    join_helper,
    joined,
    joined_bytes,
    split_batches,
    stored_records,
)
from headrace.movers.batch.gate import Passage
from headrace.movers.batch.memory import Memory
from headrace.movers.batch.outgoing import Outgoing

TOGETHER_BYTES = 240 << 10
"""Size of records that become one batch; with their growth they fit into a buffer of 256 KiB.
Larger batches have no measurable advantage, and few topics accept less than brokers do by default.
"""
_CHECKED_EVERY_S = 1.0
"""Interval of checks of all lanes together, because they share the helper. A check needs some 5 us
of Python for each record.
"""


class Run(NamedTuple):
    """Small batches that follow each other, made one."""

    batch: Batch
    """The new one, in memory of its own."""
    release: Callable[[], None]
    """Called once: that memory may be used again."""
    batches: int
    """How many they were."""
    size: int
    """Their bytes, headers included."""

    @property
    def passage(self) -> Passage:
        """Passage of its batches: the gate would pass each of them as it is."""
        return Passage.COPY

    @property
    def why(self) -> None:
        """Reason, as in ``Judged``; there is none."""
        return

    @property
    def outgoing(self) -> Outgoing:
        """For the target."""
        return Outgoing(self.batch, self.batch.last_offset + 1, self.release)


class Misjoined(Exception):
    """The helper made something else of batches than they hold."""

    def __init__(self, first: int, last: int) -> None:
        """Offsets, as far as they are known."""
        super().__init__()
        self.first, self.last = first, last


class Joiner:
    """Joiner for all lanes of a loop, called in its thread."""

    def __init__(self, buffers: Buffers, memory: Memory, now_s: Callable[[], float]) -> None:
        self._buffers, self._memory, self._now_s = buffers, memory, now_s
        self._check_s = float("-inf")
        self._failed = False

    @property
    def helper(self) -> Helper | None:
        """Helper in C; None if there is none, or none to be trusted. ``join`` then does nothing."""
        return None if self._failed else join_helper()

    def join(self, records: memoryview, start: int, most_bytes: int, *, check: bool) -> Run | None:
        """Join the first batches as ``joined`` requires; None if fewer than two can be joined.

        With ``check`` the first run, and then one a second, is compared with its batches record by
        record. Raise ``Misjoined`` for a difference; the helper is not used afterwards.
        """
        if (helper := self.helper) is None:
            return None
        buffer = self._buffers.take(joined_bytes(records, most_bytes))
        made = joined(helper, records, start, most_bytes, buffer)
        if made is None:
            self._buffers.give(buffer)
            return None
        # otherwise a caller that continues after it would never end
        right = 0 < made.size <= len(records)
        if right and check and self._now_s() >= self._check_s:
            self._check_s = self._now_s() + _CHECKED_EVERY_S
            right = _same_records(made, records)
        if not right:
            self._failed = True
            self._buffers.give(buffer)
            raise Misjoined(start, made.batch.last_offset)
        self._memory.take(len(buffer))
        return Run(made.batch, partial(self._release, buffer), made.batches, made.size)

    def _release(self, buffer: bytearray) -> None:
        self._buffers.give(buffer)
        self._memory.give(len(buffer))


def _same_records(one: Joined, records: memoryview) -> bool:
    try:
        batches, truncated_bytes = split_batches(records[: one.size])
        wanted = [record for batch in batches for record in stored_records(batch)]
        found = list(stored_records(one.batch))
    except CorruptBatch:  # the helper refuses what Python cannot read
        return False
    return (
        (len(batches), truncated_bytes, found) == (one.batches, 0, wanted)
        and one.batch.leader_epoch == batches[0].leader_epoch
        and one.batch.max_timestamp == max(record.timestamp_ms for record in wanted)
    )
