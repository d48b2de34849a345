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
        """``admit`` is called with partitions that may be appended to; ``broken`` with why nothing
        of the transaction will be committed."""
        self._cluster, self._admit, self._broken = cluster, admit, broken
        self._transactions = Transactions(cluster, writer.transactional_id)
        self.identity = ProducerIdentity(writer.producer_id, writer.producer_epoch, True)
        self.added: set[TopicPartition] = set()
        """The partitions of the one that is open; none: there is none."""
        self._wanted: dict[TopicPartition, None] = {}
        self._adding = self._closed = False

    def want(self, at: TopicPartition) -> None:
        """There is something for it: ``admit`` follows."""
        self._wanted[at] = None
        if not self._adding and not self._closed:
            self._adding = True
            start(self._add()).then(self._added)

    async def commit(self) -> None:
        """All that was appended, which is acknowledged.

        Without an answer the same is asked again: it is never guessed. Raises ``Retriable`` where
        the outcome is not known, or it is aborted, and ``Fatal`` for want of rights.
        """
        if self.added:
            await self._end(commit=True)
        self.added.clear()

    async def visible(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until consumers of committed records get all below these ends, which is committed.
        See ``marker_missing``."""
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
        """What is open, if anything is; no partition has an older one that is open."""
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
        """One request at a time, for all partitions that are wanted by then."""
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
    """The same; where the transaction is over, an error that another lane may do better after."""
    if isinstance(error, RequestRefused) and transactions.is_lost(error.code.name):
        return transactions.lost(error)
    return error
