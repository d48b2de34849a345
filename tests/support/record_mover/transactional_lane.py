"""One task's share of the record mover if it copies in transactions."""

import threading
from collections.abc import Callable, Mapping

from support.record_mover.fencing import ProducerFencing
from support.record_mover.lane import RecordLane, RecordResources
from support.record_mover.producer_transactions import RecordTransactions, as_lost

from headrace.api import TopicPartition
from headrace.assign import TaskId
from headrace.datapath.lane import CopiedCounts, CopyFrom, Reached
from headrace.datapath.transactions import (
    CUT_WITHIN_S,
    LANE_AGE_S,
    Records,
    TransactionStage,
    is_lost,
    not_acknowledged,
)
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Producer
from headrace.replication import ContiguousRange, OwnerProducer


class TransactionalRecordLane(RecordLane):
    def __init__(
        self,
        mover: RecordResources,
        fencing: ProducerFencing,
        task: TaskId,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        super().__init__(mover, task, on_error, copied)
        self._fencing = fencing
        self._made_s = mover.clock.monotonic()
        self._stage = TransactionStage.COPYING
        self._cut_began_s = 0.0
        self._broken: HeadraceError | None = None
        self._own: RecordTransactions | None = None

    def _make_producer(self) -> Producer | None:
        return None  # it comes with the first partitions, and their writer

    @property
    def transactions(self) -> "TransactionalRecordLane":
        return self

    @property
    def outdated(self) -> bool:
        return super().outdated or self._mover.clock.monotonic() - self._made_s > LANE_AGE_S

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        for at, position in positions.items():
            if position.writer is None:
                raise Fatal(f"internal error: {at} would be copied without a transactional id")
            self._write_as(position.writer)
            break
        super().open(positions)
        for at in positions:
            self._windows[at].begin_transactions()

    def _write_as(self, writer: OwnerProducer) -> None:
        if (taken := self._fencing.take(writer)) is None:
            raise Fatal(f"internal error: {writer} would be written with again")
        if self._own is not None:
            self._own.ended.set()
        self._own = taken
        self._sending.use(taken.producer)
        taken.begin()

    def poll(self) -> None:
        super().poll()
        if (own := self._own) is None:
            return
        while own.away:
            self._on_error(own.away.pop(0))
        if self._broken is not None:
            return
        for window in self._windows.values():
            if window.error is not None and is_lost(window.error.name()):
                self._broken = as_lost(window.error, f"write {window.at} to {self._name}")
                return
        dropped = not self._sending.left and any(one.in_flight for one in self._windows.values())
        if dropped and self._stage is not TransactionStage.COMMITTING and not self.problems():
            self._broken = Retriable(f"{self._name}: records were dropped, a transaction failed")

    def run_once(self) -> int:
        self.poll()
        if self._broken is not None:
            raise self._broken
        return super().run_once() if self._stage is TransactionStage.COPYING else 0

    @property
    def uncommitted(self) -> bool:
        return any(window.changed for window in self._windows.values())

    def cut(self) -> dict[TopicPartition, Reached] | None:
        self.poll()
        if self._broken is not None:
            raise self._broken
        if self._doomed:
            raise Retriable(f"{self._name} refused records of a transaction: it is aborted")
        now_s = self._mover.clock.monotonic()
        if self._stage is TransactionStage.COPYING:
            self._stage, self._cut_began_s = TransactionStage.CUTTING, now_s
        if self._stage is TransactionStage.CUTTING:
            if not any(window.in_flight for window in self._windows.values()):
                self._stage = TransactionStage.CUT
            elif now_s - self._cut_began_s > CUT_WITHIN_S:
                self._broken = not_acknowledged(self._name)
                raise self._broken
        if self._stage is not TransactionStage.CUT:
            return None
        return {at: self._reached(window, window.mark()) for at, window in self._windows.items()}

    def cut_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        return {at: list(window.cut_runs()) for at, window in self._windows.items()}

    def commit(
        self,
        progress: Mapping[TopicPartition, Records],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        """Commit in a thread of its own, because librdkafka's calls block."""
        assert self._stage is TransactionStage.CUT
        assert self._own is not None
        self._stage = TransactionStage.COMMITTING
        threading.Thread(
            target=self._commit,
            args=(self._own, progress, committed),
            name=f"commit-{self._task.name}",
            daemon=True,
        ).start()

    def _commit(
        self,
        own: RecordTransactions,
        progress: Mapping[TopicPartition, Records],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        windows = list(self._windows.values())
        try:
            own.commit(progress)
        except HeadraceError as error:
            self._broken = error
            committed(error)
            return
        ends = {
            self._target(window.at): window.target_offset
            for window in windows
            if window.uncommitted and window.target_offset is not None
        }
        for window in windows:
            window.commit(marked=bool(window.uncommitted))
        try:
            own.visible(ends)
            if not own.ended.is_set():
                own.begin()
                self._stage = TransactionStage.COPYING
        except HeadraceError as error:
            self._broken = error
        committed(None)

    def go_on(self) -> None:
        self._stage = TransactionStage.COPYING

    def drop_unsent(self) -> None:
        """Keep queued records unless the lane failed: none of them may be missing in a commit."""
        if self._broken is not None or self._doomed:
            super().drop_unsent()

    def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.ended.set()
            if self._stage is not TransactionStage.COMMITTING and self._broken is None:
                own.abort()  # all of the last one is visible: see ``marker_missing``
        super().close()

    @property
    def _name(self) -> str:
        return self._mover.target.name

    def _target(self, at: TopicPartition) -> TopicPartition:
        return TopicPartition(self._mover.target_topic(at.topic), at.partition)

    @property
    def _doomed(self) -> bool:
        return any(
            window.error is not None or window.lost_at is not None
            for window in self._windows.values()
        )
