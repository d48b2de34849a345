"""Commit of a lane's transactions, which contain data and progress.

A partition is added to the transaction before its first batch is sent.
"""

import time
from collections.abc import Callable, Mapping, Set

from headrace.api import TopicPartition
from headrace.datapath import transactions
from headrace.datapath.append import Appender, RowsAcknowledged
from headrace.datapath.lane_state import LaneState
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Acknowledged, Damaged, Failed, Indefinite, Outgoing
from headrace.datapath.transactions import (
    CUT_TIMEOUT_S,
    POLL_S,
    Records,
    TransactionStage,
    not_acknowledged,
)
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    Batch,
    BatchWriter,
    ClusterClient,
    ConnectionLost,
    ProducerIdentity,
    Reply,
    RequestRefused,
    Transactions,
    encoded,
    list_offsets,
    start,
)
from headrace.replication import OwnerProducer
from headrace.timing import Backoff

_COORDINATOR_S = 15.0


class LaneTransactions:
    """Open transaction of a lane.

    Call it in the loop's thread of ``cluster``, which is the target.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        writer: OwnerProducer,
        admit: Callable[[Set[TopicPartition]], None],
        broken: Callable[[HeadraceError], None],
    ) -> None:
        """Create the object without an open transaction.

        Args:
            cluster: The target.
            writer: Producer identity of the owner.
            admit: Receives partitions that may be appended to.
            broken: Receives the reason why the transaction cannot be committed.
        """
        self._cluster, self._admit, self._broken = cluster, admit, broken
        self._transactions = Transactions(cluster, writer.transactional_id)
        self.identity = ProducerIdentity(writer.producer_id, writer.producer_epoch, True)
        self.added: set[TopicPartition] = set()
        """Partitions of the open transaction; empty if none is open."""
        self._wanted: dict[TopicPartition, None] = {}
        self._adding = self._closed = False

    def want(self, at: TopicPartition) -> None:
        """Add a partition that has data to send. ``admit`` is called when it has been added."""
        self._wanted[at] = None
        if not self._adding and not self._closed:
            self._adding = True
            start(self._add()).then(self._added)

    async def commit(self) -> None:
        """Commit all appended data. Call it once all of them are acknowledged.

        A request without a response is repeated; the outcome is never guessed.

        Raises:
            Retriable: The outcome is unknown, or the transaction was aborted.
            Fatal: A permission is missing.
        """
        if self.added:
            await self._end(commit=True)
        self.added.clear()

    async def visible(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until read-committed consumers can read everything below the ends.

        Call it after the commit of everything below the ends.

        Raises:
            Retriable: A transaction marker did not arrive within ``VISIBLE_TIMEOUT_S``.
            Fatal: A permission is missing.
        """
        loop = self._cluster.loop
        deadline_s = loop.now_s() + transactions.VISIBLE_TIMEOUT_S
        late = dict(ends)
        while late:
            stable = await list_offsets(
                self._cluster,
                late,
                LATEST,
                read_committed=True,
                timeout_s=transactions.VISIBLE_TIMEOUT_S,
            )
            for error in stable.failed.values():
                if not isinstance(error, Retriable):
                    raise error
            late = transactions.not_visible(
                late, {at: one.offset for at, one in stable.found.items()}
            )
            if late and loop.now_s() > deadline_s:
                raise transactions.marker_missing(self._cluster.name, late)
            if late:
                await loop.sleep(transactions.POLL_S)

    async def abort(self) -> None:
        """Abort the open transaction, if any."""
        if self.added:
            await self._end(commit=False)
            self.added.clear()

    def close(self) -> None:
        """Send no more requests."""
        self._closed = True

    async def _end(self, *, commit: bool) -> None:
        loop, backoff = self._cluster.loop, Backoff(0.05, 1.0)
        deadline_s = loop.now_s() + transactions.ANSWERED_TIMEOUT_S
        while True:
            try:
                await self._transactions.end(self.identity, commit=commit, timeout_s=_COORDINATOR_S)
            except HeadraceError as error:
                lost = as_lost(error)
                again = isinstance(error, Retriable) and lost is error
                if not again or self._closed or loop.now_s() > deadline_s:
                    raise lost from error
            else:
                return
            await loop.sleep(backoff.next_s())

    async def _add(self) -> None:
        """Add all wanted partitions to the transaction, with one request at a time."""
        loop, backoff = self._cluster.loop, Backoff(0.05, 1.0)
        while self._wanted and not self._closed:
            asked = set(self._wanted)
            try:
                await self._transactions.add_partitions(
                    self.identity, asked, timeout_s=_COORDINATOR_S
                )
            except HeadraceError as error:
                if not isinstance(error, ConnectionLost):
                    raise as_lost(error) from error
                await loop.sleep(backoff.next_s())
                continue
            backoff.reset()
            for at in asked:
                del self._wanted[at]
            self.added |= asked
            self._admit(asked)

    def _added(self, reply: Reply[None]) -> None:
        self._adding = False
        if (error := reply.error) is None:
            return
        if not isinstance(error, HeadraceError):
            raise error
        self._broken(error)


def as_lost(error: HeadraceError) -> HeadraceError:
    """Return the error, as ``Retriable`` if it says that the transaction has ended."""
    code = ""
    if isinstance(error, RequestRefused):
        code = error.code.name
    elif isinstance(error, Indefinite):
        code = error.code
    return transactions.lost(error) if transactions.is_lost(code) else error


Committed = Callable[[HeadraceError | None], None]


class Commits:
    """Commits of one lane. Call it in the thread of its loop.

    It has its own appender and connections, because a produce request contains only one
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
        damaged: Damaged,
        wake: Callable[[], None],
    ) -> None:
        """Create the object.

        Args:
            cluster: The target.
            state: State of the lane.
            writer: Producer identity of the owner.
            acknowledged: Receives acknowledged batches.
            failed: Receives failed partitions.
            rows_acknowledged: Receives acknowledged batches of spans.
            waiting: Receives messages about operations that are retried.
            damaged: Receives damaged responses of the target.
            wake: Called when more data may be read.
        """
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
            damaged=damaged,
            request_admission=self._transactions.want,
            rows_acknowledged=rows_acknowledged,
        )

    async def cut(self) -> None:
        """Wait until all sent batches are acknowledged.

        If that takes longer than ``CUT_TIMEOUT_S``, the transaction fails.
        """
        deadline_s = self._loop.now_s() + CUT_TIMEOUT_S
        while self.appender.pending and self._error is None:
            if self._loop.now_s() > deadline_s:
                self._break(not_acknowledged(self._name))
                return
            await self._loop.sleep(POLL_S)
        with self._state.lock:
            if self._state.stage is TransactionStage.CUTTING:
                self._state.enter(TransactionStage.CUT)

    async def commit(
        self, progress: Mapping[TopicPartition, Records], committed: Committed
    ) -> None:
        """Commit the acknowledged data together with progress records.

        ``progress`` contains the records by partition of the progress topic. ``committed`` receives
        None, or the error.
        """
        state, transactions = self._state, self._transactions
        try:
            await self._append(progress)
            with state.lock:
                ends = {
                    at: ledger.target_offset
                    for at, ledger in state.ledgers.items()
                    if ledger.uncommitted and ledger.target_offset is not None
                }
            added = frozenset(transactions.added)
            await transactions.commit()
        except HeadraceError as error:
            self._break(error)
            committed(error)
            return
        self.appender.hold()
        with state.lock:
            for at, ledger in state.ledgers.items():
                ledger.commit(marked=at in added)
        try:
            await transactions.visible(ends)
        except HeadraceError as error:
            self._break(error)
        else:
            with state.lock:
                if state.stage is TransactionStage.COMMITTING:
                    state.enter(TransactionStage.COPYING)
        committed(None)
        self._wake()

    async def abort(self) -> None:
        """Abort the open transaction, unless it is being committed or has failed."""
        if self._state.stage in {TransactionStage.COMMITTING, TransactionStage.LOST}:
            return
        await self._transactions.abort()

    def close(self) -> None:
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
        """Record the first error. No more transactions are committed; a new lane must continue."""
        if self._error is None:
            self._error = as_lost(error)
        state = self._state
        with state.lock:
            if state.broken is None:
                state.broken = self._error
            if state.stage is not TransactionStage.LOST:
                state.enter(TransactionStage.LOST)


def _batch(records: Records) -> Batch:
    writer, now_ms = BatchWriter(), int(time.time() * 1000)
    for offset, (key, value) in enumerate(records):
        writer.add(encoded(offset, now_ms, key, value))
    return writer.finish()


def _nothing() -> None:
    """Do nothing, because the batch has its own memory."""
