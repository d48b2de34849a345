"""Small batches that follow each other become one: each costs the same, whatever it holds. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.kafka.wire import Batch, CorruptBatch
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.preserved.plan import Append, Operation

_SMALL_BYTES = 64 << 10

Join = Callable[[Sequence[Batch]], Outgoing | None]
"""``None``: one of them is damaged."""


def together(
    operations: Iterable[Operation], join: Join, *, most_bytes: int
) -> Iterator[Operation]:
    """The same records and holes; ``most_bytes``: of the records of one. Those that become one were
    not taken apart, and are not used any more. Raises what ``operations`` raises, behind those that
    came before."""
    waiting: list[Append] = []
    size = 0
    try:
        for one in operations:
            if not isinstance(one, Append) or not _small(one):
                yield from _joined(waiting, join)
                waiting, size = [], 0
                yield one
                continue
            more = one.outgoing.payload_bytes
            if waiting and not (_same_epoch(waiting[0], one) and size + more <= most_bytes):
                yield from _joined(waiting, join)
                waiting, size = [], 0
            waiting.append(one)
            size += more
    except CorruptBatch:
        yield from _joined(waiting, join)
        raise
    yield from _joined(waiting, join)


def _small(one: Append) -> bool:
    batch = one.outgoing.batch
    return not one.rebuilt and not batch.attributes and len(batch.data) <= _SMALL_BYTES


def _same_epoch(before: Append, one: Append) -> bool:
    """They follow each other: otherwise there is a hole between them."""
    return before.outgoing.leader_epoch == one.outgoing.leader_epoch


def _joined(waiting: Sequence[Append], join: Join) -> Iterator[Append]:
    made = join([one.outgoing.batch for one in waiting]) if len(waiting) > 1 else None
    if made is None:
        yield from waiting
    else:
        yield Append(made, rebuilt=True)
