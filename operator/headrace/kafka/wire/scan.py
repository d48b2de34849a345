"""Finds, checks and describes all batches of a fetched chunk in one call.

The verdicts follow the brokers' ``LogValidator``, and Kafka's consumer for aborted records.
``native.c`` contains the same algorithm in C.
"""

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.kafka.wire.batches import Batch, aborts, read_batch
from headrace.kafka.wire.errors import CorruptBatch
from headrace.kafka.wire.native import Native, address_of, native

(
    PLACE,
    SIZE,
    BASE,
    LAST,
    RECORDS,
    FLAGS,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    VERDICT,
    COLUMNS,
) = range(11)
"""Columns of a row, and their number. Offsets are source offsets. ``PLACE`` is a byte position."""
RUN_VERDICT, RUN_FIRST, RUN_ROWS, RUN_RECORDS, RUN_BYTES, RUN_COLUMNS = range(6)
"""Columns of a run, and their number. ``RUN_FIRST`` is the index of the run's first row."""

_SPECIAL, _LOG_APPEND_TIME = 0x30, 0x08  # transactional or control
_LARGEST_BASE = (1 << 63) - (1 << 31) - 1
"""Largest accepted base offset, so that the last offset fits in 64 bits for any header."""
_ROWS = 256
"""Initial number of rows. A megabyte contains 64 batches of 16 KiB."""


class BatchVerdict(IntEnum):
    """Verdict on a batch: how it can be copied, or why it is skipped."""

    COPY = 0
    """The target accepts the batch unchanged."""
    PLAIN = 1
    """The target accepts the batch unchanged, and it can be joined: no compression and no flags."""
    OLD_FORMAT = 2
    """The batch is a message of magic 0 or 1 and must be rebuilt."""
    STARTS_INSIDE = 3
    """The batch also contains records before the start offset and must be rebuilt."""
    HOLES = 4
    """Compaction removed records of the batch. Brokers accept only batches without gaps."""
    LOG_APPEND_TIME = 5
    """The source's broker set the timestamps. Brokers reject such batches from producers."""
    MARKER = 6
    """The batch is a transaction marker."""
    ABORTED = 7
    """The batch belongs to an aborted transaction."""
    EMPTY = 8
    """Compaction removed all records of the batch."""
    BEFORE_START = 9
    """All records of the batch are before the start offset."""


class Stop(IntEnum):
    """Reason why a scan ended."""

    END = 0
    """All bytes are described."""
    TRUNCATED = 1
    """The last batch is incomplete and must be fetched again."""
    CORRUPT = 2
    """The next batch is damaged or inconsistent."""
    FULL = 3
    """The arrays have no row left for the next batch."""


class Scanned(NamedTuple):
    """The batches of a chunk. The arrays are valid until the scanner's next scan."""

    rows: "array[int]"
    """``COLUMNS`` numbers for each batch."""
    row_count: int
    runs: "array[int]"
    """``RUN_COLUMNS`` numbers for each run of batches.

    A run ends at a gap in the offsets, and if the verdict or the leader epoch changes.
    """
    run_count: int
    consumed_bytes: int
    """Total size of the described batches."""
    stop: Stop


class Gate:
    """Classifies the batches of one partition of a response, in order."""

    def __init__(self, start: int, aborted: Sequence[tuple[int, int]] = ()) -> None:
        """Create a gate for a response whose records are copied from offset ``start`` on.

        ``aborted`` contains the producer id and first offset of each aborted transaction, as in a
        Fetch response.
        """
        self._start = start
        self._pending = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()

    def verdict(self, batch: Batch) -> BatchVerdict:
        """Return the verdict on the next batch. Raise ``CorruptBatch`` for an unreadable marker."""
        if batch.magic < 2:
            # A compressed set has the offset of its last message.
            before = batch.base_offset < self._start
            return BatchVerdict.BEFORE_START if before else BatchVerdict.OLD_FORMAT
        if not batch.attributes & _SPECIAL:
            return self._of_data(batch)
        pending, aborting = self._pending, self._aborting
        while pending and pending[-1][1] <= batch.last_offset:
            aborting.add(pending.pop()[0])
        if batch.control:
            if batch.producer_id in aborting and aborts(batch):
                aborting.discard(batch.producer_id)
            return BatchVerdict.MARKER
        return BatchVerdict.ABORTED if batch.producer_id in aborting else self._of_data(batch)

    def _of_data(self, batch: Batch) -> BatchVerdict:
        start, count = self._start, batch.record_count
        dense = count == batch.last_offset_delta + 1
        stamped = batch.attributes & _LOG_APPEND_TIME
        if dense and count and batch.base_offset >= start and not stamped:
            return BatchVerdict.COPY if batch.attributes else BatchVerdict.PLAIN
        if batch.last_offset < start:
            return BatchVerdict.BEFORE_START
        if not count:
            return BatchVerdict.EMPTY
        if batch.base_offset < start:
            return BatchVerdict.STARTS_INSIDE
        return BatchVerdict.LOG_APPEND_TIME if dense else BatchVerdict.HOLES


class Scanner:
    """Scans chunks into arrays that are reused by the next scan. Not thread-safe."""

    def __init__(self, helper: Native | None = None) -> None:
        """Use ``helper`` instead of the installed library."""
        self._native = helper or native()
        self._rows, self._runs = array("q"), array("q")
        self._found = array("q", bytes(3 * 8))
        self._addresses: tuple[int, ...] = ()
        self._most = 0
        self._grow(_ROWS)

    def scan(self, data: memoryview, start: int, aborted: Sequence[tuple[int, int]]) -> Scanned:
        """Describe the batches of ``data`` for copying from offset ``start`` on.

        ``aborted`` has the same meaning as in ``Gate``. The scan stops before a damaged batch, and
        ``refuse_corrupt`` then raises the reason.
        """
        if self._native is None or data.readonly or not len(data):
            return self._in_python(data, start, aborted)
        pairs = array("q")
        for producer_id, first_offset in sorted(aborted, key=lambda one: one[1]):
            pairs.extend((producer_id, first_offset))
        aborting = array("q", bytes(8 * len(aborted)))
        while True:
            stop = self._native.scan(
                address_of(data), len(data), start,
                address_of(pairs) if pairs else None, address_of(aborting) if pairs else None,
                len(aborted),
                *self._addresses,
            )  # fmt: skip
            if stop != Stop.FULL:
                break
            self._grow(4 * self._most)
        rows, runs, consumed_bytes = self._found
        return Scanned(self._rows, rows, self._runs, runs, consumed_bytes, Stop(stop))

    def _grow(self, max_rows: int) -> None:
        self._most = max_rows
        self._rows = array("q", bytes(8 * COLUMNS * max_rows))
        self._runs = array("q", bytes(8 * RUN_COLUMNS * max_rows))
        arrays = address_of(self._rows), address_of(self._runs), max_rows, address_of(self._found)
        self._addresses = arrays  # arguments of the C function

    def _in_python(
        self, data: memoryview, start: int, aborted: Sequence[tuple[int, int]]
    ) -> Scanned:
        rows, runs = array("q"), array("q")
        gate = Gate(start, aborted)
        place = next_offset = number = 0
        stop = Stop.CORRUPT
        try:
            while (batch := _intact(data, place, next_offset)) is not None:
                row = _row(batch, place, gate.verdict(batch))
                _add_to_run(rows, row, number, runs)
                rows.extend(row)
                number += 1
                place += len(batch.data)
                next_offset = batch.last_offset + 1
            stop = Stop.TRUNCATED if place < len(data) else Stop.END
        except CorruptBatch:
            pass
        return Scanned(rows, number, runs, len(runs) // RUN_COLUMNS, place, stop)


def first_rows(scanned: Scanned, count: int) -> Scanned:
    """Return the scan's result limited to the first ``count`` batches."""
    if count == scanned.row_count:
        return scanned
    rows, runs = scanned.rows, array("q")
    for at in range(0, scanned.run_count * RUN_COLUMNS, RUN_COLUMNS):
        first = scanned.runs[at + RUN_FIRST]
        if first >= count:
            break
        end = min(first + scanned.runs[at + RUN_ROWS], count)
        run = rows[first * COLUMNS : end * COLUMNS]
        records, size = sum(run[RECORDS::COLUMNS]), sum(run[SIZE::COLUMNS])
        runs.extend((scanned.runs[at + RUN_VERDICT], first, end - first, records, size))
    consumed_bytes = rows[count * COLUMNS + PLACE]
    return Scanned(rows, count, runs, len(runs) // RUN_COLUMNS, consumed_bytes, Stop.TRUNCATED)


def refuse_corrupt(data: memoryview, scanned: Scanned) -> None:
    """Raise ``CorruptBatch`` with the reason if the scan of ``data`` stopped at a damaged batch."""
    if scanned.stop is not Stop.CORRUPT:
        return
    rows, count, place = scanned.rows, scanned.row_count, scanned.consumed_bytes
    next_offset = rows[(count - 1) * COLUMNS + LAST] + 1 if count else 0
    batch = _intact(data, place, next_offset)
    if batch is not None and batch.magic == 2 and batch.control:
        aborts(batch)
    raise CorruptBatch(f"the record batch at byte {place} of the response cannot be read")


def batch_at(data: memoryview, rows: "array[int]", number: int) -> Batch:
    """Return the batch that a row describes."""
    row = number * COLUMNS
    batch = read_batch(data, rows[row + PLACE], rows[row + BASE])
    assert batch is not None, "a row describes a batch that the chunk lacks"
    return batch


def _intact(data: memoryview, place: int, next_offset: int) -> Batch | None:
    batch = read_batch(data, place, next_offset)
    if batch is None:
        return None
    where = f"the record batch with base offset {batch.base_offset}, at byte {place}"
    if batch.base_offset > _LARGEST_BASE:
        raise CorruptBatch(f"{where} of the response, ends after the largest offset")
    if batch.magic == 2 and not batch.intact:
        raise CorruptBatch(f"{where} of the response, does not fit its checksum")
    if batch.magic == 2 and batch.codec == "unknown":
        code = batch.attributes & 0x07
        raise CorruptBatch(f"{where} of the response, has codec {code}: Kafka has 0 to 4")
    return batch


def _row(batch: Batch, place: int, verdict: BatchVerdict) -> tuple[int, ...]:
    old = batch.magic < 2
    return (
        place,
        len(batch.data),
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.attributes & 0xFFFF,
        -1 if old else batch.leader_epoch,
        batch.max_timestamp,
        batch.producer_id,
        verdict,
    )


def _add_to_run(rows: "array[int]", row: tuple[int, ...], number: int, runs: "array[int]") -> None:
    if not number or (
        row[VERDICT] != rows[VERDICT - COLUMNS]
        or row[LEADER_EPOCH] != rows[LEADER_EPOCH - COLUMNS]
        or row[BASE] != rows[LAST - COLUMNS] + 1
    ):
        runs.extend((row[VERDICT], number, 0, 0, 0))
    runs[RUN_ROWS - RUN_COLUMNS] += 1
    runs[RUN_RECORDS - RUN_COLUMNS] += row[RECORDS]
    runs[RUN_BYTES - RUN_COLUMNS] += row[SIZE]
