"""Batches of a log in their order, each once it is known how its transaction ended. Pure."""

from collections import deque
from collections.abc import Iterator, Set

from headrace.kafka.wire import Batch, aborts


class HeldBatches:
    """Batches of one partition that wait for the end of a transaction.

    A batch outside of transactions passes at once, unless it is after an open transaction.
    """

    def __init__(self, writers: Set[int]) -> None:
        """Create an empty queue.

        ``writers`` are the producer ids whose transactions are awaited. Batches of other producers
        pass, even in open transactions.
        """
        self._writers = writers
        self._held: deque[Batch] = deque()
        self._aborted: dict[int, bool] = {}
        """Whether each held batch was aborted, by base offset, if its transaction has ended."""

    def take(self, batch: Batch) -> Iterator[tuple[Batch, bool]]:
        """Add the next batch of the log; yield decided batches, each with whether it was aborted.

        Raise ``CorruptBatch``.
        """
        self._held.append(batch)
        if batch.magic == 2 and batch.control and batch.producer_id in self._writers:
            aborted = aborts(batch)
            for one in self._held:
                if self._waits(one) and one.producer_id == batch.producer_id:
                    self._aborted[one.base_offset] = aborted
        while self._held and not self._waits(self._held[0]):
            first = self._held.popleft()
            yield first, self._aborted.pop(first.base_offset, False)

    def _waits(self, batch: Batch) -> bool:
        return (
            batch.magic == 2
            and batch.transactional
            and not batch.control
            and batch.producer_id in self._writers
            and batch.base_offset not in self._aborted
        )
