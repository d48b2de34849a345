"""The transactions of one lane, at their coordinator: one at a time, each over data and progress.

A partition is part of one before its first batch is sent.
"""

from collections.abc import Callable, Mapping, Set

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    ConnectionLost,
    ProducerIdentity,
    Reply,
    RequestRefused,
    Transactions,
    list_offsets,
    start,
)
from headrace.movers import transactions
from headrace.replication import OwnerProducer
from headrace.timing import Backoff

_COORDINATOR_S = 15.0


class LaneTransactions:
    """In the thread of the loop of ``cluster``, the target."""

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
            writer: Identity of the writer.
            admit: Receives partitions that may be appended to.
            broken: Receives the reason why the transaction will not be committed.
        """
        self._cluster, self._admit, self._broken = cluster, admit, broken
        self._transactions = Transactions(cluster, writer.transactional_id)
        self.identity = ProducerIdentity(writer.producer_id, writer.producer_epoch, True)
        self.added: set[TopicPartition] = set()
        """Partitions of the open transaction; empty if none is open."""
        self._wanted: dict[TopicPartition, None] = {}
        self._adding = self._closed = False

    def want(self, at: TopicPartition) -> None:
        """Add a partition that has data to send; ``admit`` is called afterwards."""
        self._wanted[at] = None
        if not self._adding and not self._closed:
            self._adding = True
            start(self._add()).then(self._added)

    async def commit(self) -> None:
        """Commit all appended data, which must be acknowledged.

        Without a response the request is repeated: the outcome is never guessed. Raise
        ``Retriable`` if the outcome is unknown or the transaction is aborted, and ``Fatal`` without
        permission.
        """
        if self.added:
            await self._end(commit=True)
        self.added.clear()

    async def visible(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until consumers of committed records can read everything below the ends.

        The ends must be committed; ``marker_missing`` describes the problem.
        """
        loop = self._cluster.loop
        deadline_s = loop.now_s() + transactions.VISIBLE_WITHIN_S
        late = dict(ends)
        while late:
            stable = await list_offsets(
                self._cluster,
                late,
                LATEST,
                read_committed=True,
                timeout_s=transactions.VISIBLE_WITHIN_S,
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
        """Abort the open transaction, if any; no partition has an older open one."""
        if self.added:
            await self._end(commit=False)
            self.added.clear()

    def close(self) -> None:
        """Ask for nothing more."""
        self._closed = True

    async def _end(self, *, commit: bool) -> None:
        loop, backoff = self._cluster.loop, Backoff(0.05, 1.0)
        deadline_s = loop.now_s() + transactions.ANSWERED_WITHIN_S
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
        """Add all wanted partitions, with one request at a time."""
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
    """Return the error as one that another lane may avoid, if the transaction is over."""
    if isinstance(error, RequestRefused) and transactions.is_lost(error.code.name):
        return transactions.lost(error)
    return error
