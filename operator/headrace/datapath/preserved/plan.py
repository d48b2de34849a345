"""Plan that makes the target's log equal: batches at their offsets, and holes."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from headrace.datapath.chunk import Judged, Passage, Run, Why
from headrace.datapath.spans import Outgoing
from headrace.kafka.wire import Batch, BatchWriter, StoredRecord, stored_records

_BATCH_BYTES = 512 << 10
"""Size of a rebuilt batch before compression: half of the brokers' default limit."""
_MOST_COPIES = 10_000
"""Maximum number of copies of a record in a batch."""
_AMONG_RECORDS = 100
"""Maximum gap, in offsets, that is filled within the batch of the neighbouring records."""


def runs(batch: Batch, start: int) -> Iterator[Outgoing]:
    """Yield the records from offset ``start`` on: a batch for each run of offsets without gaps."""
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
    """Yield the records from offset ``start`` on, with copies at the offsets before each.

    Offsets without a record, from ``first`` on, contain a copy of the next record, so that there is
    no gap.
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
    """Yield copies of a record at these offsets; in long gaps most batches have the same bytes."""
    most = min(_MOST_COPIES, max(1, _BATCH_BYTES // (len(record.content) + 8)))
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
    """Return a writer that compresses, because copies then need almost no space."""
    codec = batch.codec if batch.magic == 2 and batch.codec != "none" else "zstd"
    return BatchWriter(codec, leader_epoch=batch.leader_epoch if batch.magic == 2 else -1)


def _nothing() -> None:
    """Do nothing on release, because the batch has memory of its own."""


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
    """Offsets at which a consumer of committed records sees nothing on the source.

    They are markers, aborted records, and records that compaction removed.
    """

    first: int
    next: int
    """The first offset behind it."""

    @property
    def offsets(self) -> int:
        """Number of its offsets."""
        return self.next - self.first

    def pieces(self, most: int) -> "Iterator[Hole]":
        """Yield pieces of at most ``most`` offsets each."""
        for first in range(self.first, self.next, most):
            yield Hole(first, min(first + most, self.next))


Operation = Append | Hole
_UNSEEN = {Why.MARKER, Why.ABORTED}


def planned(
    found: Iterable[Judged | Run], *, start: int, release: Callable[[], None], copies: bool = False
) -> Iterator[Operation]:
    """Yield the operations for one partition of a response, which was fetched from ``start`` on.

    They have no gap or overlap, from ``start`` to the end of the last batch. Holes are as long as
    possible; records that compaction removed after the last batch are not known yet. ``release`` is
    called for each batch that is sent as it is. With ``copies``, offsets that compaction removed,
    up to the next record or marker, contain copies of the next record instead. Raise
    ``CorruptBatch`` and ``UnreadableBatch`` after what precedes such a batch.
    """
    written = read = unseen = start
    for one in found:
        waiting = one if isinstance(one, Run) else None
        try:
            if copies and one.passage is not Passage.SKIP and unseen > written:
                yield Hole(written, unseen)
                written = unseen
            if copies and one.why in _UNSEEN:
                unseen = one.batch.last_offset + 1
            for append in _appends(one, start, written, release, copies=copies):
                if append.first > written:
                    yield Hole(written, append.first)
                if waiting is not None and append.outgoing.batch is waiting.batch:
                    waiting = None
                yield append
                written = append.next
        finally:
            if waiting is not None:  # nobody takes it any more
                waiting.release()
        read = max(read, written, one.batch.last_offset + 1)
    if read > written:
        yield Hole(written, read)


def trailing(start: int, stable_end: int) -> Hole | None:
    """Return the gap if a response for one partition alone had nothing from ``start`` on.

    If the last stable offset is higher, compaction removed what was there. (Other partitions in the
    request may otherwise have used all the space in the response.)
    """
    return Hole(start, stable_end) if stable_end > start else None


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
