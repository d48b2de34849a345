"""Plan of a copy with preserved offsets: batches at their offsets, and holes."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from headrace.datapath.chunk import Judged, Passage, Run, Why
from headrace.datapath.spans import Outgoing
from headrace.kafka.wire import Batch, BatchWriter, StoredRecord, stored_records

_BATCH_BYTES = 512 << 10
"""Size in bytes of a rebuilt batch before compression: half of the brokers' default limit."""
_MAX_COPIES = 10_000
"""Maximum number of copies of a record in a batch."""
_AMONG_RECORDS = 100
"""Maximum number of missing offsets that are filled within a batch of records."""


def runs(batch: Batch, start: int) -> Iterator[Outgoing]:
    """Yield the records from offset ``start`` on, in one batch for each range without holes."""
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


def filled_runs(batch: Batch, start: int, first: int) -> Iterator[Outgoing]:
    """Yield the records from offset ``start`` on, without holes from ``first`` on.

    Each missing offset gets a copy of the next record.
    """
    writer, next_offset = _compressing(batch), first
    for record in stored_records(batch):
        if record.offset < start:
            continue
        among = range(next_offset, record.offset)
        if len(among) > _AMONG_RECORDS:
            if writer.offsets:
                yield _finished(writer)
                writer = _compressing(batch)
            yield from _copies(batch, record, among)
            among = range(0)
        for offset in chain(among, [record.offset]):
            if writer.offsets and _full(writer, record):
                yield _finished(writer)
                writer = _compressing(batch)
            writer.add(record._replace(offset=offset))
        next_offset = record.offset + 1
    if writer.offsets:
        yield _finished(writer)


def copies_before(batch: Batch, first: int) -> Iterator[Outgoing]:
    """Yield copies of a batch's first record at the offsets from ``first`` up to the batch."""
    record = next(stored_records(batch))
    return _copies(batch, record, range(first, record.offset))


def _copies(batch: Batch, record: StoredRecord, offsets: range) -> Iterator[Outgoing]:
    """Yield copies of a record at these offsets. In long holes most batches have the same bytes."""
    most = min(_MAX_COPIES, max(1, _BATCH_BYTES // (len(record.content) + 8)))
    made: dict[int, Batch] = {}
    for place in range(0, len(offsets), most):
        some = offsets[place : place + most]
        if len(some) not in made:
            writer = _compressing(batch)
            for offset in some:
                writer.add(record._replace(offset=offset))
            made[len(some)] = writer.finish()
        yield Outgoing(made[len(some)], some.stop, _nothing, some)


def _finished(writer: BatchWriter) -> Outgoing:
    return Outgoing(writer.finish(), writer.offsets[-1] + 1, _nothing, writer.offsets)


def _full(writer: BatchWriter, record: StoredRecord) -> bool:
    return writer.size_bytes + len(record.content) > _BATCH_BYTES


def _writer(batch: Batch) -> BatchWriter:
    if batch.magic < 2:
        return BatchWriter()
    return BatchWriter(batch.codec, leader_epoch=batch.leader_epoch)


def _compressing(batch: Batch) -> BatchWriter:
    """Return a writer that compresses, because copies of a record then need little space."""
    codec = batch.codec if batch.magic == 2 and batch.codec != "none" else "zstd"
    return BatchWriter(codec, leader_epoch=batch.leader_epoch if batch.magic == 2 else -1)


def _nothing() -> None:
    """Do nothing, because the batch has its own memory."""


class Append(NamedTuple):
    """Batch of records without a hole."""

    outgoing: Outgoing
    rebuilt: bool

    @property
    def first(self) -> int:
        """Offset of the first record on the source and the target."""
        return self.outgoing.first_offset

    @property
    def next(self) -> int:
        """Offset after the last record."""
        return self.outgoing.first_offset + self.outgoing.records


class Hole(NamedTuple):
    """Offsets at which read-committed consumers of the source get no record.

    They contain markers, aborted records, or records that compaction removed.
    """

    first: int
    next: int
    """First offset after the hole."""
    leader_epoch: int | None = None
    """Leader epoch of the source at the end of the hole; None if it is unknown."""

    @property
    def offsets(self) -> int:
        """Number of offsets in the hole."""
        return self.next - self.first

    def pieces(self, max_offsets: int) -> "Iterator[Hole]":
        """Yield pieces of at most ``max_offsets`` offsets each."""
        for first in range(self.first, self.next, max_offsets):
            yield self._replace(first=first, next=min(first + max_offsets, self.next))


Operation = Append | Hole
_UNSEEN = {Why.MARKER, Why.ABORTED}


def planned(
    found: Iterable[Judged | Run], *, start: int, release: Callable[[], None], copies: bool = False
) -> Iterator[Operation]:
    """Yield the operations that copy one partition's part of a response, in order.

    The operations cover all offsets from ``start`` to the end of the last batch, without overlap.
    Holes are as long as possible.

    Args:
        found: Batches of the response.
        start: Offset from which they were fetched.
        release: Called for each batch that is sent unchanged, when its memory is no longer used.
        copies: Whether offsets that compaction removed, up to the next record or marker, contain
            copies of the next record.

    Raises:
        CorruptBatch: A batch is damaged. Earlier operations are yielded first.
        UnreadableBatch: A batch's records cannot be read. Earlier operations are yielded first.
    """
    written = read = unseen = start
    epoch: int | None = None
    for one in found:
        epoch = one.batch.leader_epoch if one.batch.magic == 2 else -1
        waiting = one if isinstance(one, Run) else None
        try:
            if copies and one.passage is not Passage.SKIP and unseen > written:
                yield Hole(written, unseen, epoch)
                written = unseen
            if copies and one.why in _UNSEEN:
                unseen = one.batch.last_offset + 1
            for append in _appends(one, start, written, release, copies=copies):
                if append.first > written:
                    yield Hole(written, append.first, epoch)
                if waiting is not None and append.outgoing.batch is waiting.batch:
                    waiting = None
                yield append
                written = append.next
        finally:
            if waiting is not None:  # the caller did not take it
                waiting.release()
        read = max(read, written, one.batch.last_offset + 1)
    if read > written:
        yield Hole(written, read, epoch)


def _appends(
    one: Judged | Run, start: int, written: int, release: Callable[[], None], *, copies: bool
) -> Iterator[Append]:
    batch = one.batch
    if one.passage is Passage.COPY:
        if copies and batch.base_offset > written:
            yield from map(_rebuilt, copies_before(batch, written))
        if isinstance(one, Run):
            yield _rebuilt(one.outgoing)
        else:
            yield Append(Outgoing(batch, batch.last_offset + 1, release), rebuilt=False)
    elif one.passage is Passage.REBUILD:
        made = filled_runs(batch, start, written) if copies else runs(batch, start)
        yield from map(_rebuilt, made)


def _rebuilt(outgoing: Outgoing) -> Append:
    return Append(outgoing, rebuilt=True)
