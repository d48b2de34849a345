"""All batches of a fetched chunk, found, checked and described in one call.

The verdicts follow the brokers' ``LogValidator``, and Kafka's consumer for aborted records.
``native.c`` has the same in C.
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
"""Columns of a row, and their number. Offsets are the source's, places are bytes of the chunk."""
RUN_VERDICT, RUN_FIRST, RUN_ROWS, RUN_RECORDS, RUN_BYTES, RUN_COLUMNS = range(6)
"""Columns of a run, and their number. ``RUN_FIRST`` is the number of its first row."""

_SPECIAL, _LOG_APPEND_TIME = 0x30, 0x08  # transactional or control
_LARGEST_BASE = (1 << 63) - (1 << 31) - 1
"""Largest base offset whose last offset has 64 bits, whatever the header says."""
_ROWS = 256
"""Rows of a new scanner: a megabyte has 64 batches of 16 KiB."""


class BatchVerdict(IntEnum):
    """Action that a batch allows, or the reason why it is skipped."""

    COPY = 0
    """The target accepts it unchanged."""
    PLAIN = 1
    """The target accepts it unchanged. Without compression or flags, it can be joined to others."""
    OLD_FORMAT = 2
    """It is a message of magic 0 or 1, to be rebuilt."""
    STARTS_INSIDE = 3
    """It has records before the first offset that is wanted, and has to be rebuilt."""
    HOLES = 4
    """Compaction removed records of it. Brokers accept only batches without holes."""
    LOG_APPEND_TIME = 5
    """The source's broker set its timestamps. Brokers refuse such batches from producers."""
    MARKER = 6
    """It is the marker of a transaction's end."""
    ABORTED = 7
    """It belongs to an aborted transaction."""
    EMPTY = 8
    """Compaction removed all its records."""
    BEFORE_START = 9
    """All its records are before the first offset that is wanted."""


class Stop(IntEnum):
    """Why a scan ended."""

    END = 0
    """All bytes are described."""
    TRUNCATED = 1
    """The last batch is not complete: it has to be fetched again."""
    CORRUPT = 2
    """The next batch is damaged, or contradicts itself."""
    FULL = 3
    """There is no row left for the next batch."""


class Scanned(NamedTuple):
    """The batches of a chunk. The arrays are valid until the scanner's next scan."""

    rows: "array[int]"
    """``COLUMNS`` numbers for each batch."""
    row_count: int
    runs: "array[int]"
    """``RUN_COLUMNS`` numbers for each run of batches. A run ends where the verdict or the leader
    epoch changes, and where offsets have a gap."""
    run_count: int
    consumed_bytes: int
    """Size of the batches that are described."""
    stop: Stop


class Gate:
    """Decides what can be done with the batches of one response of a partition, in order."""

    def __init__(self, start: int, aborted: Sequence[tuple[int, int]] = ()) -> None:
        """Begin with a response from which offsets from ``start`` on are wanted.

        ``aborted`` has the producer id and first offset of each aborted transaction, as responses
        list them to consumers of committed records.
        """
        self._start = start
        self._pending = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()

    def verdict(self, batch: Batch) -> BatchVerdict:
        """Judge the next batch. Raises ``CorruptBatch`` for a marker that cannot be read."""
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
    """Scans chunks, one at a time, into arrays that are used again. Not thread-safe."""

    def __init__(self, helper: Native | None = None) -> None:
        """Use ``helper`` in place of the library of this installation."""
        self._native = helper or native()
        self._rows, self._runs = array("q"), array("q")
        self._found = array("q", bytes(3 * 8))
        self._addresses: tuple[int, ...] = ()
        self._most = 0
        self._grow(_ROWS)

    def scan(self, data: memoryview, start: int, aborted: Sequence[tuple[int, int]]) -> Scanned:
        """Describe all batches of ``data``, of which offsets from ``start`` on are wanted.

        See ``Gate`` for ``aborted``. Where a batch is damaged, the scan stops before it:
        ``refuse_corrupt`` raises the reason.
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

    def _grow(self, most: int) -> None:
        self._most = most
        self._rows = array("q", bytes(8 * COLUMNS * most))
        self._runs = array("q", bytes(8 * RUN_COLUMNS * most))
        arrays = address_of(self._rows), address_of(self._runs), most, address_of(self._found)
        self._addresses = arrays  # arguments of the function in C

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
    """Return what a scan would have found if the chunk had only the first ``count`` batches."""
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
    """Raise ``CorruptBatch`` with the reason why the scan of ``data`` stopped, if it did."""
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
