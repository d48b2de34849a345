"""Actions for fetched batches by the verdict of ``scan``: copy, rebuild, or skip."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from headrace.kafka.wire import Batch, BatchVerdict, Gate


class Passage(StrEnum):
    """Treatment of a batch."""

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
    """The source's broker set its timestamps: brokers reject this attribute from a producer."""
    REFUSED = "Refused"
    """The target refused a record of it, or of one nearby: that record is searched."""
    CHANGED = "Changed"
    """The flow leaves records of it out, or changes their headers."""
    COMPRESSION = "Compression"
    """The target's batches are to have another codec."""
    SMALL = "Small"
    """Several of few records waited: they become one."""
    MARKER = "Marker"
    """A marker of a transaction."""
    ABORTED = "Aborted"
    """A batch of an aborted transaction."""
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


_JUDGED: dict[int, tuple[Passage, Why | None]] = {
    BatchVerdict.COPY: (Passage.COPY, None),
    BatchVerdict.PLAIN: (Passage.COPY, None),
    BatchVerdict.OLD_FORMAT: (Passage.REBUILD, Why.OLD_FORMAT),
    BatchVerdict.STARTS_INSIDE: (Passage.REBUILD, Why.STARTS_INSIDE),
    BatchVerdict.HOLES: (Passage.REBUILD, Why.HOLES),
    BatchVerdict.LOG_APPEND_TIME: (Passage.REBUILD, Why.LOG_APPEND_TIME),
    BatchVerdict.MARKER: (Passage.SKIP, Why.MARKER),
    BatchVerdict.ABORTED: (Passage.SKIP, Why.ABORTED),
    BatchVerdict.EMPTY: (Passage.SKIP, Why.EMPTY),
    BatchVerdict.BEFORE_START: (Passage.SKIP, Why.BEFORE_START),
}


def judged_as(batch: Batch, verdict: int) -> Judged:
    """Return what happens to a batch for which ``scan`` found this verdict."""
    return Judged(batch, *_JUDGED[verdict])


def judged(
    batches: Iterable[Batch], *, start: int, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[Judged]:
    """Judge the batches of a partition of a response, in order: see ``Gate``."""
    gate = Gate(start, aborted)
    for batch in batches:
        yield judged_as(batch, gate.verdict(batch))
