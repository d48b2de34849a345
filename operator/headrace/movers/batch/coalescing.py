"""Small batches that wait together become one, also without the helper in C. Pure.

A batch costs us and the target the same whatever it holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard, TypeVar

from headrace.kafka.wire import CorruptBatch
from headrace.movers.batch.gate import Judged, Passage
from headrace.movers.batch.partition_data import Found

F = TypeVar("F", bound=Found)
_RECORDS, _BYTES = 8, 16 << 10
"""Limits of a small batch. Copying a batch costs some 50 us, rebuilding it in Python 4 us a record.
"""


def coalesced(batches: Iterable[F]) -> Iterator[Sequence[F]]:
    """Yield batches that are to become one together, in order, and every other batch by itself.

    Only uncompressed ones of one leader epoch, and of no transaction. Raises what ``batches``
    raises, after those that came before.
    """
    waiting: list[F] = []
    waiting_epoch = -1
    try:
        for one in batches:
            epoch = one.batch.leader_epoch if _is_small(one) else None
            if waiting and epoch != waiting_epoch:
                yield waiting
                waiting = []
            if epoch is None:
                yield [one]
            else:
                waiting.append(one)
                waiting_epoch = epoch
    except CorruptBatch:
        if waiting:
            yield waiting
        raise
    if waiting:
        yield waiting


def _is_small(one: Found) -> TypeGuard[Judged]:
    if not isinstance(one, Judged):
        return False
    batch = one.batch
    return (
        one.passage is Passage.COPY
        and not batch.attributes
        and batch.record_count <= _RECORDS
        and batch.payload_bytes <= _BYTES
    )
