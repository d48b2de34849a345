"""What makes the target's log equal: batches at their offsets, and holes between them. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.kafka.wire import Batch, BatchWriter, Stored, stored_records
from headrace.movers.batch.gate import Judged, Passage
from headrace.movers.batch.outgoing import Outgoing

_BATCH_BYTES = 512 << 10
"""Of a rebuilt batch, before compression: half of what brokers take by default."""


class Append(NamedTuple):
    """Records that follow each other without a gap."""

    outgoing: Outgoing
    rebuilt: bool

    @property
    def first(self) -> int:
        """Their offset on both sides."""
        return self.outgoing.first_offset

    @property
    def next(self) -> int:
        """The offset behind the last record."""
        return self.outgoing.first_offset + self.outgoing.records


class Hole(NamedTuple):
    """Offsets at which a consumer of committed records sees nothing on the source: markers, aborted
    records, and those that compaction removed."""

    first: int
    next: int
    """The first offset behind it."""

    def pieces(self, most: int) -> "Iterator[Hole]":
        """Of so many offsets each, at most."""
        for first in range(self.first, self.next, most):
            yield Hole(first, min(first + most, self.next))


Operation = Append | Hole


def planned(
    found: Iterable[Judged], *, start: int, release: Callable[[], None]
) -> Iterator[Operation]:
    """For one partition of a response, which was fetched from ``start`` on.

    Without gap or overlap, from ``start`` to the end of the last batch. Holes are as long as they
    can be; what compaction removed behind the last batch is not known yet. ``release`` is that of
    each batch that is sent as it is. Raises ``CorruptBatch`` and ``UnreadableBatch``, behind what
    comes before such a batch.
    """
    written = read = start
    for one in found:
        if one.passage is Passage.COPY:
            appends: Iterable[Append] = [_whole(one.batch, release)]
        elif one.passage is Passage.REBUILD:
            appends = _runs(one.batch, start)
        else:
            appends = ()
        for append in appends:
            if append.first > written:
                yield Hole(written, append.first)
            yield append
            written = append.next
        read = max(read, written, one.batch.last_offset + 1)
    if read > written:
        yield Hole(written, read)


def trailing(start: int, stable_end: int) -> Hole | None:
    """Where a response to a request for one partition alone had nothing from ``start`` on, and the
    last stable offset is behind it: compaction removed what was there. (With other partitions in
    the request, they may have taken all that a response holds.)"""
    return Hole(start, stable_end) if stable_end > start else None


def _whole(batch: Batch, release: Callable[[], None]) -> Append:
    return Append(Outgoing(batch, batch.last_offset + 1, release), rebuilt=False)


def _runs(batch: Batch, start: int) -> Iterator[Append]:
    """Its records from ``start`` on: a batch for each run of offsets without a gap."""
    writer, next_offset = _writer(batch), -1
    for record in stored_records(batch):
        if record.offset < start:
            continue
        if writer.offsets and (record.offset != next_offset or _full(writer, record)):
            yield _finished(writer)
            writer = _writer(batch)
        writer.add(record)
        next_offset = record.offset + 1
    if writer.offsets:
        yield _finished(writer)


def _finished(writer: BatchWriter) -> Append:
    outgoing = Outgoing(writer.finish(), writer.offsets[-1] + 1, _nothing, writer.offsets)
    return Append(outgoing, rebuilt=True)


def _full(writer: BatchWriter, record: Stored) -> bool:
    return writer.size_bytes + len(record.content) > _BATCH_BYTES


def _writer(batch: Batch) -> BatchWriter:
    if batch.magic < 2:
        return BatchWriter()
    return BatchWriter(batch.codec, leader_epoch=batch.leader_epoch)


def _nothing() -> None:
    """The batch has memory of its own."""
