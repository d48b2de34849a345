"""Producer of single records, for connections whose cluster id is compared.

librdkafka does not compare cluster ids. A broker of another cluster at a known address (KIP-1242)
would therefore receive records that count as stored.
"""

import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.admin_requests import Renewal
from headrace.kafka.clients import partition_of
from headrace.kafka.wire import (
    BatchWriter,
    ClusterClient,
    EventLoop,
    ProduceResult,
    ProducerIdentity,
    RefusedForGood,
    Reply,
    Stamped,
    encoded,
    idempotent_producer,
    produce_call,
    sequence_after,
    stamped,
    start,
)
from headrace.logs import get_logger
from headrace.timing import Backoff

log = get_logger(__name__)

OnDelivery = Callable[[KafkaError | None, Any], None]
"""Function that receives a record's outcome: an error, or None if the record was acknowledged. The
second argument, which is the message in confluent_kafka, is always None."""
Header = tuple[str, str | bytes | None]

_MAX_QUEUED = 100_000
_BATCH_BYTES = 256 << 10
"""Maximum size of a batch of several records. Topics accept 1 MiB by default."""
_BATCH_RECORDS = 1_000
_UNKNOWN_TOPIC_S = 30.0
"""Time in seconds for which a topic may be missing. Brokers learn late that a topic was created."""
_MAX_DAMAGED = 3
"""Maximum number of consecutive times that an intact batch may arrive damaged at the broker."""


class _Record(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    on_delivery: OnDelivery | None

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class DeliveryReport(NamedTuple):
    """Outcome of one record."""

    on_delivery: OnDelivery | None
    error: KafkaError | None


class _Sent(NamedTuple):
    """Batch that is sent again until the broker answers."""

    records: Sequence[_Record]
    stamped: Stamped


@dataclass
class _Queue:
    """Records of one partition that are not acknowledged."""

    at: TopicPartition
    waiting: deque[_Record] = field(default_factory=deque)
    sent: _Sent | None = None
    """Batch in flight. Its records are not in ``waiting``."""
    identity: ProducerIdentity | None = None
    sequence: int = 0
    """Sequence of the next batch with ``identity``."""
    most: int = _BATCH_RECORDS
    """Maximum number of records of the next batch."""
    damaged: int = 0
    """Number of consecutive times that the batch arrived damaged."""
    is_sending: bool = False

    def take(self) -> list[_Record]:
        """Remove and return all records."""
        records = [*(self.sent.records if self.sent else ()), *self.waiting]
        self.sent = None
        self.waiting.clear()
        return records


class DeliveryReports:
    """Outcomes of records, from the loop's thread to all threads that poll. Thread-safe.

    It replaces ``queue.SimpleQueue``. In Python 3.11 and 3.12, ``SimpleQueue.get`` may wait for
    ever despite its timeout, if another thread takes the item that has ended the wait.
    """

    def __init__(self) -> None:
        self._reports: deque[DeliveryReport] = deque()
        self._arrived = threading.Condition()

    def put(self, report: DeliveryReport) -> None:
        """Add a report."""
        with self._arrived:
            self._reports.append(report)
            self._arrived.notify()

    def take(self, timeout_s: float) -> DeliveryReport | None:
        """Remove and return the oldest report, or None if none arrives within ``timeout_s``."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._reports, timeout_s):
                return None
            return self._reports.popleft()


class RecordProducer:
    """Idempotent producer. Thread-safe.

    It has the methods of confluent_kafka's ``Producer`` that headrace uses. A record is sent until
    a broker of the expected cluster answers. One batch is in flight for each partition.
    """

    def __init__(
        self, cluster: ClusterAccess, settings: Mapping[str, object] | None = None
    ) -> None:
        """Create a producer without connections.

        With ``partitioner`` ``murmur2_random`` in ``settings``, records without a key are
        distributed. All other settings of librdkafka have no effect.
        """
        self._spread = (settings or {}).get("partitioner") == "murmur2_random"
        self._reports = DeliveryReports()
        self._unreported = 0
        self._counting = threading.Lock()
        self._loop = _shared_loop()
        self._sender = _Sender(self._loop, cluster, self._reports.put)
        weakref.finalize(self, self._loop.call_from_thread, self._sender.close)

    def __len__(self) -> int:
        """Return the number of records whose outcome was not reported yet."""
        return self._unreported

    def produce(  # noqa: PLR0917 - as confluent_kafka
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        headers: Sequence[Header] | Mapping[str, str | bytes | None] | None = None,
    ) -> None:
        """Queue a record. Raise ``BufferError`` if too many records wait."""
        if self._unreported >= _MAX_QUEUED:
            raise BufferError("too many records wait for their acknowledgement")
        with self._counting:
            self._unreported += 1
        listed = headers.items() if isinstance(headers, Mapping) else headers or ()
        record = _Record(
            topic,
            partition,
            key,
            value,
            tuple((name, one.encode() if isinstance(one, str) else one) for name, one in listed),
            int(time.time() * 1000),
            on_delivery,
        )
        spread = self._spread and key is None
        self._loop.call_from_thread(lambda: self._sender.add(record, spread=spread))

    def poll(self, timeout_s: float = 0.0) -> int:
        """Report outcomes, and wait up to ``timeout_s`` for the first. Return their number."""
        count = 0
        while (report := self._reports.take(0.0 if count else timeout_s)) is not None:
            count += 1
            try:
                if report.on_delivery is not None:
                    report.on_delivery(report.error, None)
            finally:
                with self._counting:
                    self._unreported -= 1
        return count

    def flush(self, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` for all outcomes. Return the number of missing ones."""
        deadline_s = time.monotonic() + timeout_s
        while self._unreported and (left_s := deadline_s - time.monotonic()) > 0:
            self.poll(left_s)
        return self._unreported

    def purge(self) -> None:
        """Drop all records, and report them as purged. Some may have been appended."""
        self._loop.call_from_thread(self._sender.purge)


class _Sender:
    """Sends records. Use it in the loop's thread."""

    def __init__(
        self, loop: EventLoop, access: ClusterAccess, report: Callable[[DeliveryReport], None]
    ) -> None:
        self._loop, self._access, self._report_one = loop, access, report
        self._renewal = Renewal(access)
        self._cluster = ClusterClient(loop, access)
        self._unplaced: dict[str, list[tuple[_Record, bool]]] = {}
        """Records by topic, while the topic's number of partitions is unknown.

        The second item is True if the record's partition is chosen at random instead of by its key.
        """
        self._queues: dict[TopicPartition, _Queue] = {}
        self._identity: ProducerIdentity | None = None
        self._closed = False

    def add(self, record: _Record, *, spread: bool) -> None:
        if record.partition >= 0:
            self._put(TopicPartition(record.topic, record.partition), record)
        elif record.topic in self._unplaced:
            self._unplaced[record.topic].append((record, spread))
        else:
            self._unplaced[record.topic] = [(record, spread)]
            _run(self._place(record.topic))

    def purge(self) -> None:
        dropped = [record for records in self._unplaced.values() for record, _ in records]
        for records in self._unplaced.values():
            records.clear()
        for waiting in self._queues.values():
            dropped += waiting.take()
        # The outcome of batches in flight is unknown, so their sequences cannot be continued.
        self._identity = None
        self._report(dropped, KafkaError(KafkaError._PURGE_QUEUE))

    def close(self) -> None:
        self._closed = True
        self._cluster.close()

    def _report(self, records: Sequence[_Record], error: KafkaError | None = None) -> None:
        for record in records:
            self._report_one(DeliveryReport(record.on_delivery, error))

    async def _place(self, topic: str) -> None:
        """Choose the partitions of records once the topic is known, in their order."""
        backoff, since_s = Backoff(0.05, 1.0), self._loop.now_s()
        error: KafkaError | None = None
        while not (self._closed or error or self._partitions(topic)):
            await self._refreshed(topic, backoff)
            error = self._topic_error(topic, since_s)
        records, count = self._unplaced.pop(topic), self._partitions(topic)
        if error or not count:
            self._report([record for record, _ in records], error)
            return
        for record, spread in records:
            number = random.randrange(count) if spread else partition_of(record.key or b"", count)
            self._put(TopicPartition(topic, number), record)

    def _partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions, or 0 if it is unknown."""
        view = self._client().view.topics.get(topic)
        return 0 if view is None else len(view.partitions)

    def _topic_error(self, topic: str, since_s: float) -> KafkaError | None:
        """Return the error of a topic to which records cannot be written, or None.

        A missing topic is an error once its records have waited since ``since_s`` for longer than
        ``_UNKNOWN_TOPIC_S``.
        """
        view = self._client().view.topics.get(topic)
        if view is None:
            return None
        missing = view.error.value == KafkaError.UNKNOWN_TOPIC_OR_PART
        late = missing and self._loop.now_s() - since_s > _UNKNOWN_TOPIC_S
        if late or view.error.value == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return KafkaError(view.error.value)
        return None

    def _put(self, at: TopicPartition, record: _Record) -> None:
        if (queue := self._queues.get(at)) is None:
            queue = self._queues[at] = _Queue(at)
        queue.waiting.append(record)
        if not queue.is_sending:
            queue.is_sending = True
            _run(self._send_all(queue))

    async def _send_all(self, queue: _Queue) -> None:
        """Send the records of a partition, batch by batch, until none is left."""
        topic, backoff, since_s = queue.at.topic, Backoff(0.05, 1.0), self._loop.now_s()
        while not self._closed and (queue.sent or queue.waiting):
            error: KafkaError | None = None
            try:
                if await self._send_next(queue):
                    backoff.reset()
                    since_s = self._loop.now_s()
                    continue
            except RefusedForGood as refused:  # idempotent producers are not permitted
                error = KafkaError(refused.code.value)
            except HeadraceError:  # sent again: callers report that the acknowledgement is late
                pass
            await self._refreshed(topic, backoff)
            if error := error or self._topic_error(topic, since_s):
                self._fail(queue, error)
        queue.is_sending = False

    async def _send_next(self, queue: _Queue) -> bool:
        """Send a batch, and return False if the same records must be sent again later."""
        at, cluster = queue.at, self._client()
        if (led := cluster.view.leadership(at)) is None:
            raise Retriable(f"{at} on {cluster.name} has no leader")
        connection = await cluster.connection(led.leader)
        sent = queue.sent or await self._next(queue)
        response = await connection.send(produce_call({at.topic: {at.partition: sent.stamped}}))
        if queue.sent is not sent:
            return True  # it was purged
        if (answer := response.answers.get(at)) is None:
            raise Retriable(f"{cluster.name} gave no answer for {at}")
        match answer.outcome:
            case ProduceResult.APPENDED:
                self._end(queue, sent)
            case ProduceResult.AGAIN:
                return False
            case ProduceResult.CORRUPT if queue.damaged < _MAX_DAMAGED:
                queue.damaged += 1
                return False
            case ProduceResult.TOO_LARGE if len(sent.records) > 1:
                self._put_back(queue, sent)
                queue.most = 1
            case ProduceResult.OUT_OF_ORDER | ProduceResult.INDEFINITE:
                if answer.code.value == KafkaError.DUPLICATE_SEQUENCE_NUMBER:
                    self._end(queue, sent)  # an earlier request appended it
                    return True
                self._renew(queue)
                self._put_back(queue, sent)
                return False
            case _:
                self._end(queue, sent, KafkaError(answer.code.value))
        return True

    async def _next(self, queue: _Queue) -> _Sent:
        """Return the next batch, with the next sequence of the partition."""
        if self._identity is None:
            identity = await idempotent_producer(self._client())
            self._identity = self._identity or identity  # another partition may have got one
        if queue.identity is not self._identity:
            queue.identity, queue.sequence = self._identity, 0
        waiting, writer, records = queue.waiting, BatchWriter(), list[_Record]()
        while waiting and len(records) < queue.most:
            one = waiting[0]
            if records and writer.size_bytes + one.size_bytes > _BATCH_BYTES:
                break
            records.append(waiting.popleft())
            writer.add(encoded(0, one.timestamp_ms, one.key, one.value, one.headers))
        batch = stamped(writer.finish(), self._identity, queue.sequence)
        queue.sent = _Sent(records, batch)
        return queue.sent

    def _end(self, queue: _Queue, sent: _Sent, error: KafkaError | None = None) -> None:
        """Report a batch. A batch that was rejected did not use its sequence."""
        queue.sent, queue.damaged, queue.most = None, 0, _BATCH_RECORDS
        if error is None:
            queue.sequence = sequence_after(queue.sequence, len(sent.records))
        self._report(sent.records, error)

    def _put_back(self, queue: _Queue, sent: _Sent) -> None:
        """Put the records of a batch back, to send them in other batches."""
        queue.sent = None
        queue.waiting.extendleft(reversed(sent.records))

    def _fail(self, queue: _Queue, error: KafkaError) -> None:
        if queue.sent:  # its outcome is unknown, so its sequence cannot be continued
            self._renew(queue)
        self._report(queue.take(), error)

    def _renew(self, queue: _Queue) -> None:
        """Use another producer id for the next batch of a partition."""
        if self._identity is queue.identity:
            self._identity = None

    def _client(self) -> ClusterClient:
        """Return the client, with current credentials."""
        if self._renewal.due:
            self._renewal = Renewal(self._access)
            self._cluster.close()
            self._cluster = ClusterClient(self._loop, self._access)
        return self._cluster

    async def _refreshed(self, topic: str, backoff: Backoff) -> None:
        """Wait, then read the metadata of a topic. Errors are retried by the caller."""
        await self._loop.sleep(backoff.next_s())
        try:
            await self._client().refresh([topic])
        except HeadraceError:
            return


_making = threading.Lock()
_loops: list[EventLoop] = []


def _shared_loop() -> EventLoop:
    """Return the loop of all producers of this process. The first call starts its thread."""
    with _making:
        if not _loops:
            loop = EventLoop()
            _loops.append(loop)
            threading.Thread(
                target=_run_loop, args=(loop,), name="headrace-records", daemon=True
            ).start()
        return _loops[0]


def _run_loop(loop: EventLoop) -> None:
    try:
        while True:
            loop.run_once(60.0)
    except Exception:
        # Records would wait for ever. The process must end visibly.
        log.exception("internal error, the process ends: please report it")
        os._exit(1)


def _run(coroutine: Coroutine[Reply[Any], None, None]) -> None:
    """Run a coroutine in the loop; an error of the coroutine ends the process."""
    start(coroutine).then(lambda reply: reply.result())
