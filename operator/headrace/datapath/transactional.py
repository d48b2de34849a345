"""Delivery mode of a lane that copies in transactions, which contain data and progress."""

from collections.abc import Callable, Mapping
from functools import partial

from headrace.api import TopicPartition
from headrace.datapath.append import Appender
from headrace.datapath.commit import Commits, Committed
from headrace.datapath.delivery import LaneParts, Translating
from headrace.datapath.lane import CopyFrom, Reached
from headrace.datapath.resources import run_in
from headrace.datapath.spans import Outgoing, Span
from headrace.datapath.transactions import Records, TransactionStage
from headrace.errors import Fatal
from headrace.replication import OwnerProducer
from headrace.replication.progress import ContiguousRange


class InTransactions(Translating):
    """Mode in which committed records count as copied. All partitions have the same writer.

    It implements ``Transactional`` for the task's thread.
    """

    def __init__(self, parts: LaneParts) -> None:
        super().__init__(parts)
        self._state = parts.state
        self._commits: Commits | None = None
        """Commits of the lane; None before its first partition."""

    # Hooks of ``DeliveryStrategy``

    @property
    def transactions(self) -> "InTransactions":
        return self

    @property
    def sending(self) -> Appender | None:
        return None if self._commits is None else self._commits.appender

    async def begin(self) -> None:
        """Do nothing, because the producer id arrives with the first partition."""

    def open(self, target: TopicPartition, position: CopyFrom) -> Callable[[], None]:
        if position.writer is None:
            raise Fatal(f"internal error: {target} would be copied without a transactional id")
        self._parts.resources.begin(target, position.writer)
        return partial(self._write_as, position.writer, target, position.target_offset)

    def _write_as(self, writer: OwnerProducer, target: TopicPartition, end: int) -> None:
        if self._commits is None:
            parts = self._parts
            self._commits = Commits(
                parts.outlet.cluster,
                parts.state,
                writer,
                parts.acknowledged,
                parts.failed,
                rows_acknowledged=parts.rows_acknowledged,
                waiting=parts.waiting,
                damaged=parts.damaged,
                wake=parts.reader.wake,
            )
        self._commits.appender.expect(target, end)

    def append(self, target: TopicPartition, outgoing: Outgoing | Span) -> None:
        self._opened.appender.append(target, outgoing)

    async def abort(self) -> None:
        if self._commits is not None:
            await self._commits.abort()

    def close(self) -> None:
        if self._commits is not None:
            self._commits.close()

    # Calls of the task's thread: ``Transactional``

    @property
    def uncommitted(self) -> bool:
        """Whether there are data that are not committed."""
        with self._state.lock:
            return any(one.ledger.changed for one in self._state.partitions.values())

    def cut(self) -> dict[TopicPartition, Reached] | None:
        state = self._state
        with state.lock:
            if state.broken is not None:
                raise state.broken
            if self._commits is None:  # the loop's thread has not opened the first partition yet
                return None
            if state.stage is TransactionStage.COPYING:
                state.enter(TransactionStage.CUTTING)
                run_in(self._parts.loop, self._commits.cut())
            if state.stage is not TransactionStage.CUT:
                return None
            reached = self._parts.reached
            return {at: reached(one, one.ledger.mark()) for at, one in state.partitions.items()}

    def cut_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        with self._state.lock:
            return {at: list(one.ledger.cut_runs()) for at, one in self._state.partitions.items()}

    def commit(self, progress: Mapping[TopicPartition, Records], committed: Committed) -> None:
        self._enter(TransactionStage.COMMITTING)
        run_in(self._parts.loop, self._opened.commit(progress, committed))

    def go_on(self) -> None:
        self._enter(TransactionStage.COPYING)
        self._parts.loop.call_from_thread(self._parts.reader.wake)

    def _enter(self, stage: TransactionStage) -> None:
        with self._state.lock:
            if self._state.broken is not None:  # since the cut
                raise self._state.broken
            self._state.enter(stage)

    @property
    def _opened(self) -> Commits:
        assert self._commits is not None, "no partition is open"
        return self._commits
