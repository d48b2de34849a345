"""Which fetched batches are copied as they are, which are rebuilt record by record, and why. Pure.

The rules are those of the brokers' ``LogValidator``, and of Kafka's consumer for what is aborted.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from headrace.kafka.wire import Batch, aborts

_SPECIAL, _LOG_APPEND_TIME = 0x30, 0x08  # transactional or control


class Passage(StrEnum):
    """What happens to a batch."""

    COPY = "Copy"
    """It is sent as it is."""
    REBUILD = "Rebuild"
    """Its records are put into a new one."""
    SKIP = "Skip"
    """It holds nothing to copy."""


class Why(StrEnum):
    """Why a batch is not copied as it is."""

    OLD_FORMAT = "OldFormat"
    """Messages of magic 0 or 1."""
    STARTS_INSIDE = "StartsInside"
    """Records before the start are not wanted."""
    HOLES = "Holes"
    """Compaction removed records: brokers take a batch only without."""
    LOG_APPEND_TIME = "LogAppendTime"
    """The source's broker stamped it: brokers refuse that of a producer."""
    REFUSED = "Refused"
    """The target refused a record of it, or of one nearby: that record is searched."""
    SMALL = "Small"
    """Several of few records waited: they become one."""
    MARKER = "Marker"
    """Of a transaction."""
    ABORTED = "Aborted"
    """Of a transaction that was aborted."""
    EMPTY = "Empty"
    """Compaction removed all records."""
    BEFORE_START = "BeforeStart"
    """Brokers send the whole batch, from a compressed set even those before it."""


class Judged(NamedTuple):
    """A batch, and what happens to it."""

    batch: Batch
    passage: Passage
    why: Why | None
    """``None``: it is copied as it is."""


class Gate:
    """Judges the batches of one partition of a response, in order."""

    def __init__(self, start: int, aborted: Sequence[tuple[int, int]] = ()) -> None:
        """``start`` is the first offset wanted. ``aborted`` are producer and first offset of
        aborted transactions, as that response lists them: of read committed; none else."""
        self.start = start
        self._pending = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()

    def judge(self, batch: Batch) -> Judged:
        """The next one. Raises ``CorruptBatch``."""
        if batch.magic == 2 and not batch.attributes & _SPECIAL:  # the hot path
            return _of_data(batch, self.start)
        if batch.magic < 2:
            # The offset of a compressed set is that of its last message.
            before = batch.base_offset < self.start
            return (
                Judged(batch, Passage.SKIP, Why.BEFORE_START)
                if before
                else Judged(batch, Passage.REBUILD, Why.OLD_FORMAT)
            )
        pending, aborting = self._pending, self._aborting
        while pending and pending[-1][1] <= batch.last_offset:
            aborting.add(pending.pop()[0])
        if batch.control:
            if batch.producer_id in aborting and aborts(batch):
                aborting.discard(batch.producer_id)
            return Judged(batch, Passage.SKIP, Why.MARKER)
        if batch.producer_id in aborting:
            return Judged(batch, Passage.SKIP, Why.ABORTED)
        return _of_data(batch, self.start)


def judged(
    batches: Iterable[Batch], *, start: int, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[Judged]:
    """All of them: see ``Gate``."""
    return map(Gate(start, aborted).judge, batches)


def _of_data(batch: Batch, start: int) -> Judged:
    base_offset, count = batch.base_offset, batch.record_count
    dense = count == batch.last_offset_delta + 1
    if dense and count and base_offset >= start and not batch.attributes & _LOG_APPEND_TIME:
        return Judged(batch, Passage.COPY, None)
    if batch.last_offset < start:
        return Judged(batch, Passage.SKIP, Why.BEFORE_START)
    if not count:
        return Judged(batch, Passage.SKIP, Why.EMPTY)
    if base_offset < start:
        return Judged(batch, Passage.REBUILD, Why.STARTS_INSIDE)
    return Judged(batch, Passage.REBUILD, Why.LOG_APPEND_TIME if dense else Why.HOLES)
