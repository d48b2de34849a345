"""The changes that a flow makes to the batches of a topic: records, headers and codec. Pure."""

from dataclasses import dataclass
from functools import cached_property

from headrace.api.client_settings import AS_ON_SOURCE, Compression, CompressionType
from headrace.kafka.wire import Batch, BatchWriter, StoredRecord, stored_records, with_headers
from headrace.replication import RecordChanges


@dataclass(frozen=True)
class TopicChanges:
    """The changes to one topic's batches."""

    records: RecordChanges | None = None
    """None: all records are copied, with their headers."""
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
        """Whether all batches are copied as the source has them."""
        return self.records is None and self.compression.type is CompressionType.SOURCE

    def recompress(self, batch: Batch) -> bool:
        """Return True if the batch has another codec than the target's batches are to have."""
        return batch.magic == 2 and self.codec(batch) != batch.codec

    def change(self, batch: Batch) -> bool:
        """Return True if a record of the batch is left out or gets other headers.

        Raises ``CorruptBatch`` and ``UnreadableBatch``.
        """
        return self.records is not None and any(
            self.copy(record) is not record for record in stored_records(batch)
        )

    def copy(self, record: StoredRecord) -> StoredRecord | None:
        """Return the record as the target gets it, or None if it is not copied.

        Raises ``CorruptBatch``.
        """
        return record if self.records is None else with_headers(record, self.records.apply)

    def codec(self, batch: Batch) -> str:
        """Return the codec that the batch has on the target."""
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
