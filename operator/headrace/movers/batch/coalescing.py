"""Small batches that wait together: they become one, as a batch costs us and the target the same
whatever it holds. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence

from headrace.kafka.wire import CorruptBatch
from headrace.movers.batch.gate import Judged, Passage

_RECORDS, _BYTES = 8, 16 << 10
"""Of a small batch: to copy it costs some 50 us, to rebuild it in Python 4 us for each record."""
_HELPED_BYTES = 64 << 10
"""With the helper in C, which takes some 20 ns for a record, and copies."""


def coalesced(batches: Iterable[Judged], *, helped: bool = False) -> Iterator[Sequence[Judged]]:
    """Those that are to be one, in order; every other batch by itself.

    Only uncompressed ones, of one leader epoch, of no transaction; ``helped``: also larger ones,
    whose offsets follow each other without a gap. Raises what ``batches`` raises, behind those that
    came before.
    """
    waiting: list[Judged] = []
    is_small = _is_small_for_helper if helped else _is_small
    next_offset = -1
    try:
        for one in batches:
            batch = one.batch
            small = is_small(one)
            if waiting and not (
                small
                and batch.leader_epoch == waiting[0].batch.leader_epoch
                and not (helped and batch.base_offset != next_offset)
            ):
                yield waiting
                waiting = []
            if small:
                waiting.append(one)
                next_offset = batch.last_offset + 1
            else:
                yield [one]
    except CorruptBatch:
        if waiting:
            yield waiting
        raise
    if waiting:
        yield waiting


def _is_small(one: Judged) -> bool:
    batch = one.batch
    return (
        one.passage is Passage.COPY
        and not batch.attributes
        and batch.record_count <= _RECORDS
        and batch.payload_bytes <= _BYTES
    )


def _is_small_for_helper(one: Judged) -> bool:
    batch = one.batch
    return one.passage is Passage.COPY and not batch.attributes and len(batch.data) <= _HELPED_BYTES
