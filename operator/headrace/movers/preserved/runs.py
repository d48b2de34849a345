"""Batches for the records of one that brokers would not take as it is: each without a gap. Pure."""

from collections.abc import Iterator
from itertools import chain

from headrace.kafka.wire import Batch, BatchWriter, StoredRecord, stored_records
from headrace.movers.batch.outgoing import Outgoing

_BATCH_BYTES = 512 << 10
"""Size of a rebuilt batch before compression: half of the brokers' default limit."""
_MOST_COPIES = 10_000
"""Maximum number of copies of a record in a batch."""
_AMONG_RECORDS = 100
"""A gap of so many offsets is filled in the batch of the records around it."""


def runs(batch: Batch, start: int) -> Iterator[Outgoing]:
    """Its records from offset ``start`` on: a batch for each run of offsets without a gap."""
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
