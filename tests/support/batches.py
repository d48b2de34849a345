"""Record batches and Kafka's messages as bytes, made by kio."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.serial import entity_writer
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64


def record_batch(
    values: Sequence[bytes],
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytearray:
    """Return an uncompressed batch as a producer sends it.

    ``base_offset`` is the first offset, as a broker would store it.
    """
    records = tuple(
        Record(
            attributes=i8(0),
            timestamp=TZAwareMicros.parse(datetime.now(UTC)),  # retention leaves it
            offset=i64(place),
            key=None,
            value=value,
            headers=(),
        )
        for place, value in enumerate(values)
    )
    buffer = io.BytesIO()
    batch = NewRecordBatch(
        producer_id=i64(producer_id),
        producer_epoch=i16(producer_epoch),
        base_sequence=i32(base_sequence),
        records=records,
        attributes=i16(attributes),
    )
    write_new_batch(buffer, batch)
    content = bytearray(buffer.getvalue())
    content[:8] = base_offset.to_bytes(8, "big")  # outside of the checksum
    return content


def encoded(message: Any) -> bytes:
    """Return a kio message without a header, encoded."""
    buffer = io.BytesIO()
    entity_writer(cast(Any, type(message)))(buffer, message)
    return buffer.getvalue()
