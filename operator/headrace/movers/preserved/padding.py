"""The offsets before the source's first one: filled with records that are aborted, then deleted.

Aborted, so that a consumer of committed records that is there already sees none of them.
"""

from math import inf

from headrace.api import TopicPartition
from headrace.kafka.wire import ClusterClient, Transactions, delete_records
from headrace.movers.lane import Filling
from headrace.movers.preserved.ends import End, not_replicated
from headrace.movers.preserved.filler import Filler
from headrace.movers.preserved.owner import TaskProducers
from headrace.movers.preserved.plan import Hole

_TRANSACTION_OFFSETS = 1_000_000
"""A second or two."""


async def pad(
    target: ClusterClient,
    owner: TaskProducers,
    at: TopicPartition,
    end: End,
    first: int,
    *,
    until_s: float = inf,
) -> None:
    """Fill an empty partition from its end to ``first``, and delete what was filled.

    Raise ``Filling`` once the loop's clock is past ``until_s``. Raise ``Retriable`` if filling must
    be repeated from the partition's end, which is never after ``first``.
    """
    filler = Filler(target, Transactions(target, owner.padding_id), owner.padding)
    for piece in Hole(end.offset, first).pieces(_TRANSACTION_OFFSETS):
        for error in (await filler.fill({at: piece})).values():
            raise error
        if piece.next < first and target.loop.now_s() > until_s:
            raise Filling(
                at,
                piece.next,
                f"{at} on {target.name} is filled up to offset {first}, where its source begins: "
                f"{piece.next} so far",
            )
    # Leaders delete up to the high watermark only.
    for error in (await not_replicated(target, {at: first})).values():
        raise error
    for error in (await delete_records(target, {at: first})).failed.values():
        raise error
