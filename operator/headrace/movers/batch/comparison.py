"""A batch of the source, and what the target holds of it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from headrace.kafka.wire import (
    Batch,
    CorruptBatch,
    Decoded,
    UnreadableBatch,
    decoded,
    stored_records,
)

Records = Mapping[int, Decoded]
"""By the offset on the target."""


class BatchComparison(StrEnum):
    """Result of comparing a batch that was copied as it is, or joined from such batches."""

    SAME = "Same"
    NOT_READ = "NotRead"
    """Not all of it could be read back: retention, compaction, a missing permission, no response.
    """
    DIFFERENT = "Different"
    MISJOINED = "Misjoined"
    """The helper in C changed records while joining batches: the batch was not sent."""


def compared(sent: Batch, base_offset: int, stored: Sequence[Batch]) -> tuple[BatchComparison, str]:
    """Compare a sent batch with what the target stores; return the result and the reason.

    ``stored`` has the target's batches from ``base_offset`` on, where it appended ``sent``. A
    target may compress records again and set its own timestamps. In that case records are compared
    instead of bytes.
    """
    if not stored:
        return BatchComparison.NOT_READ, "the target does not hold these offsets any more"
    if _same_bytes(sent, stored[0], base_offset):
        return BatchComparison.SAME, ""
    try:
        wanted = dict(_records(sent, base_offset - sent.base_offset))
        found = dict(record for batch in stored for record in _records(batch, 0))
    except UnreadableBatch as error:  # a codec that only the clusters know, say
        return BatchComparison.NOT_READ, f"what the target holds cannot be decoded: {error}"
    except CorruptBatch as error:
        return BatchComparison.DIFFERENT, str(error)
    return _compared(wanted, found, compare_timestamps=not stored[0].log_append_time)


def _compared(
    wanted: Records, found: Records, *, compare_timestamps: bool
) -> tuple[BatchComparison, str]:
    for offset in sorted(wanted.keys() & found.keys()):
        what = _difference(wanted[offset], found[offset], compare_timestamps=compare_timestamps)
        if what:
            return BatchComparison.DIFFERENT, f"the {what} of the record at offset {offset} differs"
    if missing := len(wanted.keys() - found.keys()):
        return (
            BatchComparison.NOT_READ,
            f"the target does not hold {missing} of its records any more",
        )
    return BatchComparison.SAME, ""


def _same_bytes(sent: Batch, copy: Batch, base_offset: int) -> bool:
    """Compare everything except what brokers write into a header; this is the hot path."""
    return (
        copy.base_offset == base_offset
        and (copy.magic, copy.codec) == (sent.magic, sent.codec)
        and copy.last_offset_delta == sent.last_offset_delta
        and (copy.base_timestamp, copy.max_timestamp) == (sent.base_timestamp, sent.max_timestamp)
        and (copy.record_count, copy.log_append_time) == (sent.record_count, False)
        and bytes(copy.payload) == bytes(sent.payload)  # views compare item by item
        and copy.intact
    )


def _records(batch: Batch, moved: int) -> Iterator[tuple[int, Decoded]]:
    for record in map(decoded, stored_records(batch)):
        yield record.offset + moved, record


def _difference(record: Decoded, copy: Decoded, *, compare_timestamps: bool) -> str:
    for what in ("key", "value", "headers"):
        if getattr(record, what) != getattr(copy, what):
            return what
    differs = compare_timestamps and record.timestamp_ms != copy.timestamp_ms
    return "timestamp" if differs else ""
