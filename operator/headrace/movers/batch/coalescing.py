"""Small batches that wait together: they become one, as a batch costs us and the target the same
whatever it holds. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence

from headrace.kafka.wire import CorruptBatch
from headrace.movers.batch.gate import Judged, Passage

_RECORDS, _BYTES = 8, 16 << 10
"""Of a small batch: to copy it costs some 50 us, to rebuild it 4 us for each record."""


def coalesced(batches: Iterable[Judged]) -> Iterator[Sequence[Judged]]:
    """Those that are to be one, in order; every other batch by itself.

    Only uncompressed ones, of one leader epoch, of no transaction. Raises what ``batches`` raises,
    behind those that came before.
    """
    waiting: list[Judged] = []
    try:
        for one in batches:
            small, epoch = _is_small(one), one.batch.leader_epoch
            if waiting and not (small and epoch == waiting[0].batch.leader_epoch):
                yield waiting
                waiting = []
            if small:
                waiting.append(one)
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
