"""A lane that copies in transactions: when one is cut, and how it is committed with progress."""

import time
from collections.abc import Callable, Mapping, Set

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import Batch, BatchWriter, ClusterClient, encoded
from headrace.movers.batch.appender import Appender, RowsAcknowledged
from headrace.movers.batch.lane_state import LaneState
from headrace.movers.batch.leader import Leaders
from headrace.movers.batch.outgoing import Acknowledged, Failed, Outgoing
from headrace.movers.batch.transaction import LaneTransactions, as_lost
from headrace.movers.transactions import (
    CUT_WITHIN_S,
    POLL_S,
    Records,
    TransactionStage,
    not_acknowledged,
)
from headrace.replication import OwnerProducer

Committed = Callable[[HeadraceError | None], None]


class Commits:
    """Commits of one lane, called in the thread of its loop.

    It has the appender and connections of its own, because a produce request names one
    transactional id.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        state: LaneState,
        writer: OwnerProducer,
        acknowledged: Acknowledged,
        failed: Failed,
        *,
        rows_acknowledged: RowsAcknowledged,
        waiting: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        """``cluster`` is the target; ``wake`` is called when more may be read."""
        self._loop, self._state, self._failed, self._wake = cluster.loop, state, failed, wake
        self._name = cluster.name
        self._leaders = Leaders(cluster, writer.transactional_id)
        self._transactions = LaneTransactions(cluster, writer, self._admit, self._break)
        self._progress: set[TopicPartition] = set()
        self._error: HeadraceError | None = None
        self.appender = Appender(
            self._loop,
            self._leaders,
            self._transactions.identity,
            acknowledged,
            self._append_failed,
            waiting=waiting,
            wanted=self._transactions.want,
            rows_acknowledged=rows_acknowledged,
        )

    async def cut(self) -> None:
        """Wait until all that was sent is acknowledged."""
        deadline_s = self._loop.now_s() + CUT_WITHIN_S
        while self.appender.pending and self._error is None:
            if self._loop.now_s() > deadline_s:
                self._break(not_acknowledged(self._name))
                return
            await self._loop.sleep(POLL_S)
        with self._state.lock:
            if self._state.stage is TransactionStage.CUTTING:
                self._state.stage = TransactionStage.CUT

    async def commit(
        self, progress: Mapping[TopicPartition, Records], committed: Committed
    ) -> None:
        """Commit the data that was cut, with this progress, by partition of the progress topic."""
        state, transactions = self._state, self._transactions
        try:
            await self._append(progress)
            with state.lock:
                ends = {
                    one.target: one.target_offset
                    for one in state.windows.values()
                    if one.uncommitted and one.target_offset is not None
                }
            added = frozenset(transactions.added)
            await transactions.commit()
        except HeadraceError as error:
            self._break(error)
            committed(error)
            return
        self.appender.hold()
        with state.lock:
            for window in state.windows.values():
                window.commit(marked=window.target in added)
        try:
            await transactions.visible(ends)
        except HeadraceError as error:
            self._break(error)
        else:
            with state.lock:
                state.stage = TransactionStage.COPYING
        committed(None)
        self._wake()

    async def abort(self) -> None:
        """Abort the open transaction, unless it is being committed; do not wait if that fails."""
        if self._state.stage is TransactionStage.COMMITTING or self._error is not None:
            return
        await self._transactions.abort()

    def close(self) -> None:
        """End the connections."""
        self._transactions.close()
        self.appender.close()
        self._leaders.close()

    async def _append(self, progress: Mapping[TopicPartition, Records]) -> None:
        for at, records in progress.items():
            self._progress.add(at)
            self.appender.append(at, Outgoing(_batch(records), len(records), _nothing))
        self.appender.flush()
        while self.appender.pending and self._error is None:
            await self._loop.sleep(POLL_S)
        if self._error is not None:
            raise self._error

    def _admit(self, partitions: Set[TopicPartition]) -> None:
        self.appender.admit(partitions)

    def _append_failed(self, at: TopicPartition, error: HeadraceError) -> None:
        lost = as_lost(error)
        if at in self._progress or lost is not error:
            self._break(lost)
        else:
            self._failed(at, error)

    def _break(self, error: HeadraceError) -> None:
        """Stop committing; another lane must continue."""
        if self._error is None:
            self._error = as_lost(error)
        with self._state.lock:
            if self._state.broken is None:
                self._state.broken = self._error


def _batch(records: Records) -> Batch:
    writer, now_ms = BatchWriter(), int(time.time() * 1000)
    for offset, (key, value) in enumerate(records):
        writer.add(encoded(offset, now_ms, key, value))
    return writer.finish()


def _nothing() -> None:
    """Do nothing on release, because the batch has memory of its own."""
