"""What a response holds of one partition: runs of small batches, and all others one by one."""

from collections.abc import Callable, Iterator

from headrace.kafka.wire import joinable, read_batch
from headrace.movers.batch.gate import Gate, Judged
from headrace.movers.batch.joining import Run

Join = Callable[[memoryview, int], Run | None]
"""Of a log's first batches, from an offset on; ``None``: they are taken one by one."""

Found = Judged | Run


def found_in(records: memoryview, gate: Gate, join: Join | None) -> Iterator[Found]:
    """In order; what is truncated at the end is left. ``join`` takes batches that the gate would
    let pass as they are. Raises ``CorruptBatch``, behind what comes before such a batch."""
    place = next_offset = 0
    while True:
        if join is not None and joinable(records, place):
            run = join(records[place:], max(next_offset, gate.start))
            if run is not None:
                yield run
                place += run.size
                next_offset = run.batch.last_offset + 1
                continue
        if (batch := read_batch(records, place, next_offset)) is None:
            return
        yield gate.judge(batch)
        place += len(batch.data)
        next_offset = batch.last_offset + 1
