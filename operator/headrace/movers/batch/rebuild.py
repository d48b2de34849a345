"""Batches that cannot be copied as they are: their records, put into new ones. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.kafka.wire import Batch, BatchWriter, stored_records
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.batch.topic_changes import UNCHANGED, TopicChanges

_BATCH_BYTES = 512 << 10
"""Size of a new batch before compression: half of the brokers' default limit."""


class Rebuilt(NamedTuple):
    """New batches made of fetched ones."""

    outgoing: list[Outgoing]
    left_out: int
    """Records that the flow does not copy."""


def rebuilt(
    batches: Sequence[Batch],
    *,
    start: int,
    release: Callable[[], None],
    most_records: int | None = None,
    most_bytes: int = _BATCH_BYTES,
    changes: TopicChanges = UNCHANGED,
) -> Rebuilt:
    """Put the records with offset ``start`` and above of successive batches into new batches.

    Key, value and timestamps stay. ``changes`` decide which records are copied, their headers and
    the codec; without them, headers stay, and so does the codec of the first batch. The records of
    a batch that the broker stamped get the broker's time. One batch makes several where
    ``most_records`` or ``most_bytes`` requires it. ``release`` is called once the memory of
    ``batches`` is not needed any more: the new ones have their own. Batches without such a record
    make none.

    Raises ``CorruptBatch`` and ``UnreadableBatch``, and releases nothing then.
    """
    made, left_out = list[Outgoing](), 0
    writer = changes.writer(batches[0])
    for batch in batches:
        for stored in stored_records(batch):
            if stored.offset < start:
                continue
            if (record := changes.copy(stored)) is None:
                left_out += 1
                continue
            if writer.offsets and (
                len(writer.offsets) == most_records
                or writer.size_bytes + len(record.content) > most_bytes
            ):
                made.append(_finished(writer))
                writer = changes.writer(batch)
            writer.add(record)
    if writer.offsets:
        made.append(_finished(writer))
    if made:  # the offsets after its last record hold nothing to copy
        made[-1] = made[-1]._replace(next_offset=batches[-1].last_offset + 1)
    release()
    return Rebuilt(made, left_out)


def halves(outgoing: Outgoing) -> list[Outgoing]:
    """Two batches with its records, which are more than one: the target took it for too large.

    They have memory of their own. Raises ``CorruptBatch`` and ``UnreadableBatch``.
    """
    batch, half = outgoing.batch, outgoing.records // 2
    writers = [
        BatchWriter(batch.codec, level=outgoing.level, leader_epoch=batch.leader_epoch)
        for _ in range(2)
    ]
    for index, record in enumerate(stored_records(batch)):
        offset = outgoing.source_offset(index)
        writers[index >= half].add(record._replace(offset=offset))
    first, second = map(_finished, writers)
    return [first, second._replace(next_offset=outgoing.next_offset)]


def _finished(writer: BatchWriter) -> Outgoing:
    return Outgoing(writer.finish(), writer.offsets[-1] + 1, _nothing, writer.offsets, writer.level)


def _nothing() -> None:
    """Do nothing on release, because the memory is the batch's own."""
