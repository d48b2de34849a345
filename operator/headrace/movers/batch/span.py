"""Consecutive batches of a fetched chunk that the target accepts unchanged."""

from collections.abc import Callable

from headrace.kafka.wire import (
    HEADER_BYTES,
    ProducerIdentity,
    Scanned,
    batch_at,
    stamp,
)
from headrace.kafka.wire.scan import (
    BASE,
    COLUMNS,
    LAST,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    RUN_BYTES,
    RUN_COLUMNS,
    RUN_FIRST,
    RUN_RECORDS,
    RUN_ROWS,
)
from headrace.movers.batch.outgoing import Outgoing


class Span:
    """A run of batches that are sent one by one, without a Python object for each.

    Source and target offsets of its records differ by a constant, if no other client writes to the
    target. Not thread-safe: the window, the queue and the appender of a partition share it.
    """

    __slots__ = (
        "_release",
        "acknowledged",
        "data",
        "first_offset",
        "headers",
        "held",
        "leader_epoch",
        "next_offset",
        "payload_bytes",
        "records",
        "row_count",
        "rows",
        "size",
    )

    def __init__(
        self, data: memoryview, scanned: Scanned, run: int, release: Callable[[], None]
    ) -> None:
        """Describe a run of ``scanned``, by its number, whose bytes are in ``data``.

        ``release`` is called once, when the memory of ``data`` is not needed any more.
        """
        at = run * RUN_COLUMNS
        runs = scanned.runs
        first, count = runs[at + RUN_FIRST], runs[at + RUN_ROWS]
        rows = scanned.rows[first * COLUMNS : (first + count) * COLUMNS]
        self.data, self.rows, self.row_count, self._release = data, rows, count, release
        self.first_offset = rows[BASE]
        """Source offset of the first record that is not acknowledged."""
        self.next_offset = rows[LAST - COLUMNS] + 1
        """Source offset after the last record."""
        self.leader_epoch = rows[LEADER_EPOCH]
        self.records = runs[at + RUN_RECORDS]
        self.size = runs[at + RUN_BYTES]
        """Bytes of the batches, headers included."""
        self.payload_bytes = self.size - count * HEADER_BYTES
        self.acknowledged = 0
        """Number of the first row that is not acknowledged."""
        self.held = count
        """Rows whose memory is still used."""
        self.headers = bytearray()
        """Headers of all batches for the target, once they are stamped."""

    def stamp(self, producer: ProducerIdentity, sequence: int) -> None:
        """Write the headers for the target, with sequences from ``sequence`` on."""
        self.headers = stamp(self.data, self.rows, producer, sequence)

    @property
    def timestamp_ms(self) -> int:
        """The newest timestamp of the first batch that is not acknowledged."""
        return self.rows[min(self.acknowledged, self.row_count - 1) * COLUMNS + MAX_TIMESTAMP]

    def split_until(self, offset: int) -> None:
        """Record that parts of a batch, which was too large, are acknowledged up to an offset."""
        self.first_offset = offset
        self.acknowledged += self.rows[self.acknowledged * COLUMNS + LAST] < offset

    def outgoing(self, row: int) -> Outgoing:
        """Return one of the batches by itself. Its ``release`` releases the row."""
        batch = batch_at(self.data, self.rows, row)
        return Outgoing(batch, batch.last_offset + 1, self.release_row)

    def release_row(self) -> None:
        """Release one row, which is acknowledged or dropped."""
        self.release(1)

    def release(self, rows: int) -> None:
        """Release so many rows, and the memory with the last one."""
        self.held -= rows
        if not self.held:
            self.data = memoryview(b"")
            self._release()
