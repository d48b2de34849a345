"""One task's share of the batch mover where it copies in transactions."""

import threading
from collections.abc import Callable, Mapping
from functools import partial

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError
from headrace.kafka.wire import start
from headrace.movers.batch.lane import BatchLane
from headrace.movers.lane import CopyFrom, Reached
from headrace.movers.transactions import ABORT_S, Records, TransactionStage
from headrace.replication import ContiguousRange, OwnerProducer


class TransactionalLane(BatchLane):
    """Lane that copies in transactions. All its partitions are opened with one writer."""

    @property
    def transactions(self) -> "TransactionalLane":
        """This lane, which copies in transactions."""
        return self

    @property
    def uncommitted(self) -> bool:
        """Whether there are data that are not committed."""
        with self._state.lock:
            return any(window.changed for window in self._state.windows.values())

    def cut(self) -> dict[TopicPartition, Reached] | None:
        state = self._state
        with state.lock:
            if state.broken is not None:
                raise state.broken
            if state.stage is TransactionStage.COPYING:
                state.stage = TransactionStage.CUTTING
                self._run(self._pipeline.cut())
            if state.stage is not TransactionStage.CUT:
                return None
            return {
                at: self._reached(at, window, window.mark()) for at, window in state.windows.items()
            }

    def cut_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        with self._state.lock:
            return {at: list(one.cut_runs()) for at, one in self._state.windows.items()}

    def commit(
        self,
        progress: Mapping[TopicPartition, Records],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        with self._state.lock:
            assert self._state.stage is TransactionStage.CUT
            self._state.stage = TransactionStage.COMMITTING
        self._run(self._pipeline.commit(progress, committed))

    def go_on(self) -> None:
        with self._state.lock:
            self._state.stage = TransactionStage.COPYING
        self._post(self._pipeline.reader.wake)

    def _open(self, at: TopicPartition, target: TopicPartition, position: CopyFrom) -> None:
        if position.writer is None:
            raise Fatal(f"internal error: {at} would be copied without a transactional id")
        self._state.open(at, target, position, transactional=True)

    def _write_as(self, target: TopicPartition, writer: OwnerProducer) -> None:
        self._begin(target, writer)
        self._post(partial(self._pipeline.write_in_transactions, writer))

    def _end(self) -> None:
        """Abort what is open."""
        ended = threading.Event()
        self._post(lambda: start(self._pipeline.abort()).then(lambda _: ended.set()))
        ended.wait(ABORT_S)
