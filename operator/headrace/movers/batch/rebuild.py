"""Batches that cannot be copied as they are: their records, put into new ones. Pure."""

from collections.abc import Callable, Iterator, Sequence

from headrace.kafka.wire import Batch, BatchWriter, stored_records
from headrace.movers.batch.outgoing import Outgoing

_BATCH_BYTES = 512 << 10
"""Of a new batch, before compression: half of what brokers take by default."""


def rebuilt(
    batches: Sequence[Batch],
    *,
    start: int,
    release: Callable[[], None],
    most_records: int | None = None,
    most_bytes: int = _BATCH_BYTES,
) -> list[Outgoing]:
    """The records with offset ``start`` and above of batches that follow each other.

    Key, value, headers and timestamps stay; so does the codec of the first batch. Of a batch that
    the broker stamped, each record gets that time. One batch makes several where ``most_records``
    or ``most_bytes`` says so. ``release`` is called once nothing of ``batches`` is needed any more:
    the new ones have their own memory. Nothing comes of batches without such a record.

    Raises ``CorruptBatch`` and ``UnreadableBatch``, and releases nothing then.
    """
    made = [
        Outgoing(batch, offsets[-1] + 1, _nothing, offsets)
        for batch, offsets in _made(batches, start, most_records, most_bytes)
    ]
    if made:  # what follows the last record of it was removed by compaction
        made[-1] = made[-1]._replace(next_offset=batches[-1].last_offset + 1)
    release()
    return made


def halves(outgoing: Outgoing) -> list[Outgoing]:
    """Two batches with its records, which are more than one: the target took it for too large.

    They have memory of their own. Raises ``CorruptBatch`` and ``UnreadableBatch``.
    """
    batch, half = outgoing.batch, outgoing.records // 2
    writers = [_writer(batch), _writer(batch)]
    for index, record in enumerate(stored_records(batch)):
        offset = outgoing.source_offset(index)
        writers[index >= half].add(record._replace(offset=offset))
    first, second = writers
    return [
        Outgoing(first.finish(), first.offsets[-1] + 1, _nothing, first.offsets),
        Outgoing(second.finish(), outgoing.next_offset, _nothing, second.offsets),
    ]


def _made(
    batches: Sequence[Batch], start: int, most_records: int | None, most_bytes: int
) -> Iterator[tuple[Batch, Sequence[int]]]:
    writer = _writer(batches[0])
    for batch in batches:
        for record in stored_records(batch):
            if record.offset < start:
                continue
            if writer.offsets and (
                len(writer.offsets) == most_records
                or writer.size_bytes + len(record.content) > most_bytes
            ):
                yield writer.finish(), writer.offsets
                writer = _writer(batch)
            writer.add(record)
    if writer.offsets:
        yield writer.finish(), writer.offsets


def _writer(batch: Batch) -> BatchWriter:
    if batch.magic < 2:
        return BatchWriter()
    return BatchWriter(batch.codec, leader_epoch=batch.leader_epoch)


def _nothing() -> None:
    """The memory is the batch's own."""
