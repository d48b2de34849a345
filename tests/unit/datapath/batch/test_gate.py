"""Batches that are copied unchanged, and the reasons why others are not."""

import pytest
from support.stored import batches_of, content, log_batch, marker, message

from headrace.datapath.chunk import Passage, Why, judged
from headrace.kafka.wire import CorruptBatch, StoredRecord

RECORDS = [StoredRecord(offset, 5, content(None, b"v")) for offset in range(10, 13)]
PLAIN = log_batch(RECORDS)


@pytest.mark.parametrize(
    ("batch", "start", "passage", "why"),
    [
        (PLAIN, 10, Passage.COPY, None),
        (PLAIN, 0, Passage.COPY, None),
        (PLAIN, 11, Passage.REBUILD, Why.STARTS_INSIDE),
        (PLAIN, 13, Passage.SKIP, Why.BEFORE_START),
        (log_batch(RECORDS[::2]), 10, Passage.REBUILD, Why.HOLES),
        (log_batch(RECORDS, last_offset=15), 10, Passage.REBUILD, Why.HOLES),
        (log_batch([], base_offset=10, last_offset=12), 10, Passage.SKIP, Why.EMPTY),
        (log_batch(RECORDS, attributes=0x08), 10, Passage.REBUILD, Why.LOG_APPEND_TIME),
        (log_batch(RECORDS, attributes=0x40), 10, Passage.COPY, None),
        (log_batch(RECORDS, attributes=0x10, producer_id=5), 10, Passage.COPY, None),
        (log_batch(RECORDS, attributes=0x10, producer_id=6), 10, Passage.SKIP, Why.ABORTED),
        (log_batch(RECORDS, producer_id=6), 10, Passage.COPY, None),
        (marker(10, 5, commit=True), 10, Passage.SKIP, Why.MARKER),
        (message(10, None, b"v", magic=1), 10, Passage.REBUILD, Why.OLD_FORMAT),
        (message(10, None, b"v", magic=0), 11, Passage.SKIP, Why.BEFORE_START),
    ],
)
def test_a_batch_is_judged(batch: bytearray, start: int, passage: Passage, why: Why | None) -> None:
    [one] = judged(batches_of(batch), start=start, aborted=[(6, 8)])

    assert (one.passage, one.why) == (passage, why)


def test_a_producer_that_aborted_goes_on_after_its_marker() -> None:
    log = batches_of(
        log_batch(RECORDS, attributes=0x10, producer_id=6),
        marker(13, 6, commit=False),
        log_batch([StoredRecord(14, 0, b"\1\1\0")], attributes=0x10, producer_id=6),
    )

    assert [one.passage.value for one in judged(log, start=0, aborted=[(6, 10)])] == [
        "Skip",
        "Skip",
        "Copy",
    ]


def test_a_marker_that_cannot_be_read_is_corrupt() -> None:
    log = batches_of(
        log_batch(RECORDS, attributes=0x10, producer_id=6),
        log_batch([StoredRecord(13, 0, b"")], attributes=0x30, producer_id=6),
    )

    with pytest.raises(CorruptBatch, match="control batch at offset 13"):
        list(judged(log, start=0, aborted=[(6, 10)]))
