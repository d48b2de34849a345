"""Requests about a transactional id to its coordinator. Data is sent directly to the leaders.

A coordinator's response is only a promise: a marker exists when it can be read from the partition.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from kio.schema.end_txn.v3.request import EndTxnRequest
from kio.schema.end_txn.v3.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable, Unreachable
from headrace.kafka.errors import AccessDenied
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.errors import (
    ConnectionLost,
    RequestRefused,
    UnsupportedBroker,
    check,
    refusal,
)
from headrace.kafka.wire.offsets import by_topic
from headrace.kafka.wire.protocol import Call, call
from headrace.kafka.wire.routing import find_coordinators
from headrace.timing import Backoff

T = TypeVar("T")
TIMEOUT_S = 30.0
_TRANSACTION = i8(1)  # type of coordinator
# Errors that changed nothing: the coordinator moves or loads, or still completes the previous
# transaction.
_NOTHING_DONE = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
}


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Producer id and epoch of a batch, which brokers check."""

    producer_id: int
    epoch: int
    transactional: bool = False
    """True if the producer's batches are part of transactions."""


class Transactions:
    """Transactions of one transactional id.

    Methods raise these errors:

    - ``RequestRefused`` contains the coordinator's code. The codes 47 and 90 mean that another
      producer has a higher epoch.
    - ``ConnectionLost`` means that the request may or may not have been processed.
    - ``Retriable`` means that no coordinator was found in time.
    """

    def __init__(
        self, cluster: ClusterClient, transactional_id: str, *, again_s: float = 0.02
    ) -> None:
        """Create a client for one transactional id.

        If the coordinator cannot process a request yet, it is repeated after ``again_s``. The delay
        increases each time.
        """
        self._cluster, self._again_s = cluster, again_s
        self.id = transactional_id
        self._id = TransactionalId(transactional_id)
        self._coordinator = -1

    async def find(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Return the node id of the coordinator, as soon as it is known.

        The transactional id itself is not checked.
        """
        loop, backoff = self._cluster.loop, Backoff(0.02, 1.0)
        deadline_s = loop.now_s() + timeout_s
        while True:
            try:
                return await self._find()
            except HeadraceError as error:
                if not _nothing_done(error) or loop.now_s() >= deadline_s:
                    raise
            await loop.sleep(backoff.next_s())

    async def init_producer_id(
        self,
        *,
        timeout_ms: int = 60_000,
        current: ProducerIdentity | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ProducerIdentity:
        """Return an identity with a higher epoch, and abort an open transaction of the id.

        Afterwards the coordinator rejects requests with the old epoch. Leaders reject old data only
        after a marker. With ``current``, the request fails unless ``current`` is still the newest
        identity (KIP-360). If the transactional id has expired, the coordinator returns another
        ``producer_id`` without an error, so compare it. ``timeout_ms`` is the maximum duration of
        transactions.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
            producer_id=ProducerId(-1 if current is None else current.producer_id),
            producer_epoch=i16(-1 if current is None else current.epoch),
        )
        response = await self._send(
            "get a producer epoch",
            # Kafka 2.4 has neither field. The epoch is compared below instead.
            call(request, InitProducerIdResponse, without=("producer_id", "producer_epoch")),
            lambda answer: [answer.error_code],
            timeout_s,
        )
        identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        if (
            current is not None
            and identity.producer_id == current.producer_id
            and identity.epoch > current.epoch + 1
        ):
            tried = f"renew the producer epoch of {self._id} on {self._cluster.name}"
            raise refusal(ErrorCode.producer_fenced, tried)
        return identity

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Add partitions to the transaction. If one partition is rejected, none is added.

        The end of the transaction writes a marker to each partition, even to one without data.
        """
        topics = tuple(
            AddPartitionsToTxnTopic(
                name=TopicName(topic), partitions=tuple(i32(at.partition) for at, _ in those)
            )
            for topic, those in by_topic([(at, None) for at in partitions])
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=ProducerId(identity.producer_id),
            v3_and_below_producer_epoch=i16(identity.epoch),
            v3_and_below_topics=topics,
        )
        await self._send(
            "add partitions to the transaction",
            call(request, AddPartitionsToTxnResponse),
            _codes_of_partitions,
            timeout_s,
        )

    async def end(
        self, identity: ProducerIdentity, *, commit: bool, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Commit or abort the transaction.

        The markers are written after the response, as soon as the partitions have leaders.
        """
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=ProducerId(identity.producer_id),
            producer_epoch=i16(identity.epoch),
            committed=commit,
        )
        await self._send(
            "commit the transaction" if commit else "abort the transaction",
            call(request, EndTxnResponse),
            lambda answer: [answer.error_code],
            timeout_s,
        )

    async def describe(self, *, timeout_s: float = TIMEOUT_S) -> TransactionState:
        """Return the coordinator's state, identity and partitions of the transaction."""
        request = DescribeTransactionsRequest(transactional_ids=(self._id,))
        response = await self._send(
            "describe the transaction",
            call(request, DescribeTransactionsResponse),
            lambda answer: [one.error_code for one in answer.transaction_states],
            timeout_s,
        )
        return response.transaction_states[0]

    async def _send(
        self,
        tried: str,
        request: Call[T],
        codes: Callable[[T], Iterable[ErrorCode]],
        timeout_s: float,
    ) -> T:
        """Send a request to the coordinator, and repeat it after errors that changed nothing."""
        loop, backoff = self._cluster.loop, Backoff(self._again_s, 1.0)
        deadline_s = loop.now_s() + timeout_s
        tried = f"{tried} of {self._id} on {self._cluster.name}"
        while True:
            try:
                connection = await self._cluster.connection(await self._find(), "transactions")
                response = await connection.send(request)
                for code in codes(response):
                    check(code, tried)
            except HeadraceError as error:
                last = error
            else:
                return response
            if not _nothing_done(last) or loop.now_s() >= deadline_s:
                raise last
            if (
                not isinstance(last, RequestRefused)
                or last.code is not ErrorCode.concurrent_transactions
            ):
                self._coordinator = -1
            await loop.sleep(backoff.next_s())

    async def _find(self) -> int:
        if self._coordinator not in self._cluster.view.brokers:
            try:
                await self._cluster.refresh()
                connection = await self._cluster.any_connection()
                coordinators = await find_coordinators(connection, _TRANSACTION, [self._id])
            except ConnectionLost as error:
                raise Unreachable(str(error)) from error  # the request changes nothing
            for found in coordinators:
                check(found.error_code, f"find the coordinator of {self._id}")
                self._coordinator = found.node_id
        return self._coordinator


async def idempotent_producer(
    cluster: ClusterClient, *, timeout_s: float = TIMEOUT_S
) -> ProducerIdentity:
    """Return a new producer id without a transactional id. It cannot be fenced.

    Any broker provides one. Raise ``Retriable`` if no broker did in time, ``RequestRefused`` if the
    principal lacks the permission, or ``AccessDenied`` if a user must correct the access.
    """
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)),
        producer_id=ProducerId(-1),
        producer_epoch=i16(-1),
    )
    loop, backoff = cluster.loop, Backoff(0.02, 1.0)
    deadline_s = loop.now_s() + timeout_s
    while True:
        try:
            connection = await cluster.any_connection()
            response = await connection.send(call(request, InitProducerIdResponse))
            check(response.error_code, f"get a producer id of {cluster.name}")
            return ProducerIdentity(response.producer_id, response.producer_epoch)
        except AccessDenied:
            raise
        except Retriable:
            if loop.now_s() >= deadline_s:
                raise
        await loop.sleep(backoff.next_s())


async def transactional_ids(
    cluster: ClusterClient, producer_ids: Collection[int]
) -> dict[int, str]:
    """Return transactional ids by producer id. Producers without one are left out.

    Each broker lists the ids that it coordinates and that the principal may describe. Raise
    ``RequestRefused``, ``Unreachable``, or ``UnsupportedBroker`` before Kafka 3.0.
    """
    request = call(
        ListTransactionsRequest(producer_id_filters=tuple(map(ProducerId, producer_ids))),
        ListTransactionsResponse,
    )
    found: dict[int, str] = {}
    view = await cluster.refresh()
    for node in view.brokers:
        connection = await cluster.connection(node)
        response = await connection.send(request)
        check(response.error_code, f"list the transactions of {cluster.name}")
        found |= {one.producer_id: one.transactional_id for one in response.transaction_states}
    return found


def _codes_of_partitions(answer: AddPartitionsToTxnResponse) -> list[ErrorCode]:
    """Return the error codes. Codes of partitions that were not attempted come last."""
    codes = [
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    return sorted(codes, key=lambda code: code is ErrorCode.operation_not_attempted)


def _nothing_done(error: HeadraceError) -> bool:
    if isinstance(error, RequestRefused):
        return error.code in _NOTHING_DONE
    if isinstance(error, AccessDenied | UnsupportedBroker):
        return False
    return isinstance(error, Retriable) and not (
        isinstance(error, ConnectionLost) and error.may_have_arrived
    )
