"""Contents of a fetched chunk of one partition: spans, joined batches, and single batches."""

from collections.abc import Callable, Iterator

from headrace.kafka.wire import BatchVerdict, Scanned, batch_at, refuse_corrupt
from headrace.kafka.wire.scan import (
    BASE,
    COLUMNS,
    PLACE,
    RUN_COLUMNS,
    RUN_FIRST,
    RUN_ROWS,
    RUN_VERDICT,
    SIZE,
)
from headrace.movers.batch.gate import Judged, judged_as
from headrace.movers.batch.joining import Run
from headrace.movers.batch.span import Span

Join = Callable[[memoryview, int], Run | None]
"""Joins the first batches of a log, from an offset on. It returns ``None`` if they are to be sent
one by one."""

Found = Judged | Run | Span


def found_in(
    records: memoryview, scanned: Scanned, *, join: Join | None, release: Callable[[], None]
) -> Iterator[Found]:
    """Yield what ``scanned`` describes in ``records``, in order, without a truncated last batch.

    ``join`` accepts plain batches. ``release`` is called for each span. Raise ``CorruptBatch``
    after everything that precedes such a batch.
    """
    for run in range(scanned.run_count):
        if scanned.runs[run * RUN_COLUMNS + RUN_VERDICT] == BatchVerdict.COPY:
            yield Span(records, scanned, run, release)
        else:
            yield from _in_run(records, scanned, run, join)
    refuse_corrupt(records, scanned)


def each_found_in(
    records: memoryview, scanned: Scanned, *, join: Join | None
) -> Iterator[Judged | Run]:
    """Do the same as ``found_in`` without spans: each batch is yielded by itself, or joined."""
    for run in range(scanned.run_count):
        yield from _in_run(records, scanned, run, join)
    refuse_corrupt(records, scanned)


def _in_run(
    records: memoryview, scanned: Scanned, run: int, join: Join | None
) -> Iterator[Judged | Run]:
    runs, rows, at = scanned.runs, scanned.rows, run * RUN_COLUMNS
    verdict, row, count = runs[at + RUN_VERDICT], runs[at + RUN_FIRST], runs[at + RUN_ROWS]
    end = row + count
    while row < end:
        place = rows[row * COLUMNS + PLACE]
        if join is not None and verdict == BatchVerdict.PLAIN:
            last = (end - 1) * COLUMNS
            plain = records[place : rows[last + PLACE] + rows[last + SIZE]]
            if (joined := join(plain, rows[row * COLUMNS + BASE])) is not None:
                yield joined
                row += joined.batches
                continue
        yield judged_as(batch_at(records, rows, row), verdict)
        row += 1
