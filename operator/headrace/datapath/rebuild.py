"""New batches that contain records of fetched batches."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import NamedTuple

from headrace.api.client_settings import AS_ON_SOURCE, Compression, CompressionType
from headrace.datapath.lane import SourceRecord
from headrace.datapath.spans import Outgoing
from headrace.kafka.wire import (
    Batch,
    BatchWriter,
    StoredRecord,
    decoded,
    stored_records,
    with_headers,
)
from headrace.replication import RecordChanges


@dataclass(frozen=True)
class TopicChanges:
    """Changes of a flow to one topic's batches."""

    records: RecordChanges | None = None
    """Filter and header changes; None if all records are copied with their headers."""
    compression: Compression = AS_ON_SOURCE

    @classmethod
    def of(
        cls, topic: str, records: RecordChanges | None, compression: Compression
    ) -> "TopicChanges":
        """Return the part of a flow's changes that concerns a topic."""
        concerned = records is not None and records.concern(topic)
        return cls(records if concerned else None, compression)

    @cached_property
    def nothing(self) -> bool:
        """Whether all batches are copied unchanged."""
        return self.records is None and self.compression.type is CompressionType.SOURCE

    def recompress(self, batch: Batch) -> bool:
        """Return whether the batch has another codec than the one required on the target."""
        return batch.magic == 2 and self.codec(batch) != batch.codec

    def change(self, batch: Batch) -> bool:
        """Return whether a record of the batch is excluded or gets other headers.

        Raises:
            CorruptBatch: The batch is damaged.
            UnreadableBatch: The records cannot be read.
        """
        return self.records is not None and any(
            self.copy(record) is not record for record in stored_records(batch)
        )

    def copy(self, record: StoredRecord) -> StoredRecord | None:
        """Return the record with the flow's changes, or None if it is not copied.

        Raises:
            CorruptBatch: The record is damaged.
        """
        return record if self.records is None else with_headers(record, self.records.apply)

    def codec(self, batch: Batch) -> str:
        """Return the codec of the batch on the target."""
        if self.compression.type is not CompressionType.SOURCE:
            return self.compression.type.lower()
        return batch.codec if batch.magic == 2 else "none"

    def writer(self, batch: Batch) -> BatchWriter:
        """Return a writer for records of the batch."""
        return BatchWriter(
            self.codec(batch),
            level=self.compression.level,
            leader_epoch=batch.leader_epoch if batch.magic == 2 else -1,
        )


UNCHANGED = TopicChanges()


_BATCH_BYTES = 512 << 10
"""Size in bytes of a new batch before compression: half of the brokers' default limit."""


class Rebuilt(NamedTuple):
    """New batches made of the records of fetched batches."""

    outgoing: list[Outgoing]
    left_out: int
    """Number of records that the flow excludes."""


def rebuilt(
    batches: Sequence[Batch],
    *,
    start: int,
    release: Callable[[], None],
    most_records: int | None = None,
    most_bytes: int = _BATCH_BYTES,
    changes: TopicChanges = UNCHANGED,
) -> Rebuilt:
    """Put records with offset ``start`` and above into new batches.

    Keys, values and timestamps are unchanged. Exception: if the broker set the time of a batch
    (``LogAppendTime``), each of its records gets that time. Batches without a record to copy have
    no result.

    Args:
        batches: Consecutive batches of one partition.
        start: First source offset to copy.
        release: Called when the memory of ``batches`` is no longer needed; the new batches have
            their own. It is not called after an error.
        most_records: Maximum number of records in a new batch; None for no limit.
        most_bytes: Maximum size of a new batch.
        changes: Filter, header changes and codec. By default, headers and the first batch's codec
            are kept.

    Raises:
        CorruptBatch: A batch is damaged.
        UnreadableBatch: The records of a batch cannot be read.
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
    if made:  # the offsets after the last record need no copy
        made[-1] = made[-1]._replace(next_offset=batches[-1].last_offset + 1)
    release()
    return Rebuilt(made, left_out)


def halves(outgoing: Outgoing) -> list[Outgoing]:
    """Split a batch, which the target rejected as too large, into two.

    The batch must have more than one record. The new batches have their own memory.

    Raises:
        CorruptBatch: The batch is damaged.
        UnreadableBatch: The records cannot be read.
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
    """Do nothing, because the batch has its own memory."""


_FEW = 64
"""Maximum number of suspects that are sent one by one. Each rejection requires a new lane, which
takes about as long as sending this many records one after the other."""


class OneAtATime:
    """Queue of batches that are sent one at a time to find a record that the target rejects.

    The batches are copies, so the fetch response can be released.
    """

    def __init__(self, suspects: range) -> None:
        """Create an empty queue for the source offsets ``suspects``."""
        self._suspects = suspects
        self._waiting: deque[Outgoing] = deque()
        self._originals: dict[int, StoredRecord] = {}
        """Source records that are sent alone, by offset."""

    @property
    def together(self) -> int:
        """Maximum number of records in one batch.

        It is 1 for up to 64 suspects, otherwise the square root of their number.
        """
        return 1 if len(self._suspects) <= _FEW else isqrt(len(self._suspects))

    @property
    def waiting(self) -> bool:
        """Whether batches are queued. Later batches of the partition must not be sent or read."""
        return bool(self._waiting)

    def concerns(self, first_offset: int, next_offset: int) -> bool:
        """Return whether the range contains a suspect offset."""
        return first_offset < self._suspects.stop and self._suspects.start < next_offset

    def put(self, outgoing: Iterable[Outgoing]) -> None:
        self._waiting.extend(outgoing)

    def next(self) -> Outgoing | None:
        """Remove and return the next batch, or None.

        Call it when all earlier batches are acknowledged.
        """
        return self._waiting.popleft() if self._waiting else None

    def remember(self, records: Iterable[StoredRecord]) -> None:
        """Keep the source records of the queued batches.

        Call it only if each record is sent alone.
        """
        for record in records:
            self._originals[record.offset] = record._replace(content=bytes(record.content))

    def source_record(self, offset: int) -> SourceRecord:
        """Return a source record that is sent alone."""
        record = decoded(self._originals[offset])
        return SourceRecord(
            record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )

    def drop(self) -> None:
        """Discard and release the queued batches."""
        while self._waiting:
            self._waiting.popleft().release()
