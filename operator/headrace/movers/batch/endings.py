"""Committed records of a partition according to its log, for the progress topic."""

from collections.abc import Iterator

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka.wire import ClusterClient, EventLoop, aborts
from headrace.movers.batch.tail import Tail
from headrace.replication.reconcile import Decided, Ended, TransactionalBatch, decided

_PATIENCE_S = 5.0


def transactions_decided(
    cluster: ClusterAccess, at: TopicPartition, offsets: range
) -> list[Decided]:
    """Return the transactions with a batch in ``offsets`` that have ended within them.

    All offsets must be acknowledged. The call reads them with a connection of its own, and waits.
    Raise ``Retriable`` while no leader responds, and ``Fatal`` without permission to read.
    """
    loop = EventLoop()
    client = ClusterClient(loop, cluster)
    try:
        tail = Tail(client, at, offsets.start, patience_s=_PATIENCE_S)
        return list(decided(_entries(tail, offsets.stop)))
    finally:
        client.close()
        loop.close()


def _entries(tail: Tail, end: int) -> Iterator[TransactionalBatch | Ended]:
    for batch in tail.batches(end):
        if batch.magic < 2:
            continue  # older than transactions
        if batch.control:
            yield Ended(batch.base_offset, batch.producer_id, not aborts(batch))
        elif batch.transactional:
            yield TransactionalBatch(
                range(batch.base_offset, batch.last_offset + 1), batch.producer_id
            )
