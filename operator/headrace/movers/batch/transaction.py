"""The transactions of one lane, at their coordinator: one at a time, each over data and progress.

A partition is part of one before its first batch is sent. Brokers lose the marker of a partition
without a leader: each must have come, or the next abort drops what was committed.
"""

from collections.abc import Callable, Mapping, Set

from headrace.api import TopicPartition
from headrace.backoff import Backoff
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    Cluster,
    ConnectionLost,
    ProducerIdentity,
    Refused,
    Reply,
    Transactions,
    list_offsets,
    start,
)
from headrace.replication import Writer

_COORDINATOR_S = 15.0
_VISIBLE_WITHIN_S = 5.0
"""From a commit to its markers, which its coordinator sends at once."""
_ANSWERED_WITHIN_S = 55.0
"""A commit without an answer is sent again for so long: ``transaction.timeout.ms`` is a minute."""
_POLL_S = 0.005
_LOST = {
    "invalid_producer_epoch",
    "producer_fenced",
    "invalid_producer_id_mapping",
    "invalid_txn_state",
    "unknown_producer_id",
    "transaction_abortable",
}
"""Another owner, or the coordinator after a minute, has ended the transaction."""


class LaneTransactions:
    """In the thread of the loop of ``cluster``, the target."""

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
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
        Raises ``Retriable`` where that takes too long: before the next abort drops it, or anybody
        waits for it in vain, a take-over has to make that good."""
        loop = self._cluster.loop
        deadline_s = loop.now_s() + _VISIBLE_WITHIN_S
        late = dict(ends)
        while late:
            stable = await list_offsets(
                self._cluster, late, LATEST, read_committed=True, timeout_s=_VISIBLE_WITHIN_S
            )
            for error in stable.failed.values():
                if not isinstance(error, Retriable):
                    raise error
            found = stable.found
            late = {
                at: end for at, end in late.items() if at not in found or found[at].offset < end
            }
            if late and loop.now_s() > deadline_s:
                first = min(late)
                raise Retriable(
                    f"a transaction is open on {first} of {self._cluster.name} below offset "
                    f"{late[first]}, up to which all is committed: its marker was lost, or another "
                    "client writes there"
                )
            if late:
                await loop.sleep(_POLL_S)

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
        deadline_s = loop.now_s() + _ANSWERED_WITHIN_S
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
    if isinstance(error, Refused) and error.code.name in _LOST:
        return Retriable(f"{error}: its transaction was ended by another owner, or took too long")
    return error
