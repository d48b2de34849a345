"""A cluster in memory on sockets: brokers that serve its logs as batches.

They follow the rules of brokers for leaders, fetch sessions, and producers' epochs and sequences.
Tests put faults into their answers.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import response as fetch_11
from kio.schema.fetch.v13 import response as fetch
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.list_offsets.v7 import response as listed
from kio.schema.offset_for_leader_epoch.v4 import response as ends
from kio.schema.produce.v9 import response as produce
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64
from support.batches import record_batch
from support.fake_broker import (
    NOT_THROTTLED,
    Answer,
    Raw,
    Request,
    Script,
    Serve,
    Silence,
    Told,
    metadata_of,
    served,
)
from support.fake_kafka import MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord, offsets_of
from support.producer_state import ProducerState

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.partitions import TopicPartition
from headrace.kafka.wire import (
    Batch,
    ClusterClient,
    ConnectionSettings,
    EventLoop,
    decoded,
    split_batches,
    stored_records,
)
from headrace.kafka.wire.protocol import converted

PRODUCE, FETCH, LIST_OFFSETS, METADATA, INIT_PRODUCER_ID, EPOCH_ENDS = 0, 1, 2, 3, 22, 23
TOPIC = "orders"
_API_VERSIONS = 18
EARLIEST = -2
_VERSION_11 = 11
_DELETE_HORIZON = 0x40
_BATCH_RECORDS = 2


@dataclass(frozen=True)
class Lost:
    """The connection ends instead of an answer."""

    appended: bool


@dataclass(frozen=True)
class Refusal:
    """An answer, and nothing is appended."""

    code: ErrorCode
    indexes: tuple[int, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Unreadable:
    """The batch is appended, and the answer breaks the protocol."""


@dataclass(frozen=True)
class Misreported:
    """The batch is appended, and the answer has another offset."""

    base_offset: int


Fault = Refusal | Lost | Unreadable | Misreported | None
"""Fault of a batch. ``None``: the batch is treated as brokers do."""
LOST, UNANSWERED = Lost(appended=False), Lost(appended=True)
REFUSED = Refusal(ErrorCode.not_enough_replicas)


@dataclass
class Answers:
    """Answers about one partition that differ from its log."""

    error: Callable[[int, Any], ErrorCode] = lambda node, asked: ErrorCode.none
    """Error with which a node answers a fetch; it sends nothing else then."""
    epoch_end: tuple[int, int] | None = None
    """Leader epoch and end offset that the leader answers; by default as the reader has them."""
    diverging: list[tuple[int, int]] = field(default_factory=list)
    """Diverging epoch and its end in the next fetches, one for each."""
    preferred: int = -1
    """A follower that the leader names."""
    uncommitted: int = 0
    """Number of answers with records that are those to a read of uncommitted records."""
    garbage: list[bytes] = field(default_factory=list)
    """Sent instead of batches, one for each fetch."""

    def uncommitted_now(self) -> bool:
        """Count an answer with records, and return whether it lists no aborted transactions."""
        self.uncommitted -= 1
        return self.uncommitted >= 0


class WireCluster:
    """Brokers with one topic of a cluster in memory; each has the logs of all its partitions."""

    def __init__(
        self,
        serve: Serve,
        cluster: FakeCluster,
        topic: str,
        partitions: int,
        *,
        nodes: int = 1,
        kafka_2_4: bool = False,
    ) -> None:
        """Start the brokers.

        ``kafka_2_4``: they have neither topic ids nor a Fetch that compares epochs.
        """
        self.cluster, self.topic = cluster, topic
        self.led: Told = dict.fromkeys(range(partitions), (1, 4))
        self.topic_id = UUID(int=len(topic))
        self.silent: set[int] = set()
        """Partitions of which no fetch and no batch is answered."""
        self.lock = threading.RLock()

        self.answers = {partition: Answers() for partition in range(partitions)}
        self.delays_s: list[float] = []
        """Delays of a quota, one for each fetch, which is answered without data."""
        self.largest_answer = 1 << 20
        """Bytes of a partition, beyond which brokers send no further batch."""
        self.read_back: Callable[[bytes], bytes | ErrorCode] = lambda batches: batches
        """Answer to a client that reads batches."""
        self.session_error = ErrorCode.none
        self.twice = False
        """Whether the next answer about several partitions names the first one twice."""
        self.fetches: list[tuple[int, Any]] = []
        """Node, and its request."""
        self.compared: list[tuple[int, int]] = []
        """Current leader epoch, and the requested epoch."""
        self.sessions = 0
        self._sessions: dict[int, dict[int, Any]] = {}

        self.fault: Callable[[int, Batch], Fault] = lambda partition, batch: None
        """Fault of the next batch of a partition."""
        self.sent: list[dict[int, bytes]] = []
        """The batches of each request, by partition."""
        self.writers: dict[tuple[TopicPartition, int], int] = {}
        """Producer id, by partition and offset."""
        self.producers: dict[tuple[TopicPartition, int], ProducerState] = {}
        self._ids = count(101)

        versions = served({FETCH: (4, 11), METADATA: (0, 9)} if kafka_2_4 else {})
        self.brokers = {
            node: serve({**self._script(node), _API_VERSIONS: lambda _: versions})
            for node in range(1, nodes + 1)
        }
        self.live = {node: broker.port for node, broker in self.brokers.items()}

    def _script(self, node: int) -> Script:
        return {
            METADATA: lambda _: metadata_of(
                self.live,
                self.led,
                self.topic_id,
                self.topic,
                cluster_id=f"id-of-{self.cluster.name}",
            ),
            FETCH: lambda request: self._fetch(node, request),
            LIST_OFFSETS: self._list,
            EPOCH_ENDS: self._epoch_ends,
            PRODUCE: lambda request: self._produce(node, request),
            INIT_PRODUCER_ID: self._identify,
        }

    @property
    def access(self) -> ClusterAccess:
        """Return the access to it."""
        servers = ",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values())
        return ClusterAccess(ClusterSpec(alias=self.cluster.name, bootstrap_servers=servers))

    def client(self, loop: EventLoop, settings: ConnectionSettings | None = None) -> ClusterClient:
        """Return a client of it."""
        return ClusterClient(loop, self.access, settings)

    @property
    def logs(self) -> dict[int, FakeLog]:
        """Return the topic's logs, by partition."""
        return {
            at.partition: log for at, log in self.cluster.logs.items() if at.topic == self.topic
        }

    def append(self, *values: bytes, partition: int = 0, **more: Any) -> None:
        """Append a batch with these values."""
        batch = record_batch(values, base_offset=self.logs[partition].end, **more)
        self.store([bytes(batch)], [partition])

    def store(self, batches: Sequence[bytes], partitions: Sequence[int] = (0,)) -> None:
        """Append the same batches to these partitions, at the offsets that the batches have."""
        (*found,) = split_batches(memoryview(bytearray(b"".join(batches)))).batches
        contents = [_records(one) for one in found]
        with self.cluster.changed:
            for log in (self.logs[partition] for partition in partitions):
                for batch, data, records in zip(found, batches, contents, strict=True):
                    log.store(batch.base_offset, data, records)
            self.cluster.changed.notify_all()

    def next_id(self) -> int:
        """Return a new producer id."""
        with self.lock:
            return next(self._ids)

    def _identify(self, _: Request) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.none,
            producer_id=ProducerId(self.next_id()),
            producer_epoch=i16(0),
        )

    def _log(self, partition: int) -> FakeLog:
        return self.cluster.logs[TopicPartition(self.topic, partition)]

    # Read.

    def _fetch(self, node: int, request: Request) -> Answer:
        message = request.message
        with self.cluster.changed:
            self.fetches.append((node, message))
            if self.delays_s:
                delay = i32Timedelta.parse(timedelta(seconds=self.delays_s.pop(0)))
                return replace(self._fetched(request, 0, ()), throttle_time=delay)
            if self.session_error is not ErrorCode.none:
                code, self.session_error = self.session_error, ErrorCode.none
                return replace(self._fetched(request, 0, ()), error_code=code)
            number, wanted = self._session(message)
            if self.silent & wanted.keys():
                return Silence()
            self.cluster.changed.wait_for(
                lambda: any(self._news(node, one) for one in wanted.values()),
                message.max_wait.total_seconds(),
            )
            answers = [
                self._partition(node, one)
                for one in wanted.values()
                if not number or self._news(node, one)
            ]
            if self.twice and len(answers) > 1:
                self.twice = False
                answers[1] = replace(answers[1], partition_index=answers[0].partition_index)
        return self._fetched(request, number, [self._as_read(one) for one in answers])

    def _session(self, message: Any) -> tuple[int, dict[int, Any]]:
        told = {one.partition: one for topic in message.topics for one in topic.partitions}
        if message.session_epoch < 0:
            return 0, told
        if message.session_epoch == 0:
            self.sessions += 1
            self._sessions[self.sessions] = told
            return self.sessions, told
        known = self._sessions[message.session_id]
        for topic in message.forgotten_topics_data:
            for partition in topic.partitions:
                del known[partition]
        known |= told
        return message.session_id, known

    def _news(self, node: int, asked: Any) -> bool:
        answers, end = self.answers[asked.partition], self._log(asked.partition).end
        refused = self._code(node, asked) is not ErrorCode.none
        named = answers.preferred not in {-1, node}
        return refused or named or bool(answers.diverging) or asked.fetch_offset < end

    def _code(self, node: int, asked: Any) -> ErrorCode:
        answers, log = self.answers[asked.partition], self._log(asked.partition)
        if node not in {self.led[asked.partition][0], answers.preferred}:
            return ErrorCode.not_leader_or_follower
        if (code := answers.error(node, asked)) is not ErrorCode.none:
            return code
        inside = log.start <= asked.fetch_offset <= log.end
        return ErrorCode.none if inside else ErrorCode.offset_out_of_range

    def _partition(self, node: int, asked: Any) -> fetch.PartitionData:
        answers, log = self.answers[asked.partition], self._log(asked.partition)
        code, named = self._code(node, asked), answers.preferred not in {-1, node}
        content, more = b"", dict[str, Any]()
        if answers.diverging:
            epoch, end = answers.diverging.pop(0)
            more["diverging_epoch"] = fetch.EpochEndOffset(epoch=i32(epoch), end_offset=i64(end))
        elif code is ErrorCode.none and not named:
            content = answers.garbage.pop() if answers.garbage else self._batches(asked)
        return fetch.PartitionData(
            partition_index=i32(asked.partition),
            error_code=code,
            high_watermark=i64(log.end),
            last_stable_offset=i64(log.stable_end),
            log_start_offset=i64(log.start),
            aborted_transactions=None
            if content and answers.uncommitted_now()
            else tuple(
                fetch.AbortedTransaction(producer_id=ProducerId(one), first_offset=i64(first))
                for one, first in log.aborted
            ),
            preferred_read_replica=BrokerId(answers.preferred if named else -1),
            records=Records(content[: asked.partition_max_bytes]),
            **more,
        )

    def _batches(self, asked: Any) -> bytes:
        """Return the batches from an offset on."""
        log, content, offset = self._log(asked.partition), b"", asked.fetch_offset
        most = min(asked.partition_max_bytes, self.largest_answer)
        while offset < log.end and len(content) < most:
            batch = self._batch(asked.partition, offset)
            offset = offsets_of(batch).stop if batch else offset + 1
            content += batch
        return content

    def _batch(self, partition: int, offset: int) -> bytes:
        """Return the batch that has this offset, or nothing."""
        log = self._log(partition)
        return log.batch_at(offset) or _small_batch(log, offset)

    def _as_read(self, answer: fetch.PartitionData) -> fetch.PartitionData:
        if not answer.records:
            return answer
        found = self.read_back(bytes(answer.records))
        if isinstance(found, ErrorCode):
            return replace(answer, error_code=found, records=Records(b""))
        return replace(answer, records=Records(found))

    def _fetched(self, request: Request, session: int, answers: Sequence[Any]) -> Any:
        schema: Any = fetch
        topic: Any
        if request.version == _VERSION_11:
            schema, without = fetch_11, ["diverging_epoch", "current_leader"]
            old = [converted(one, fetch_11.PartitionData, without=without) for one in answers]
            topic = fetch_11.FetchableTopicResponse(
                topic=TopicName(self.topic), partitions=tuple(old)
            )
        else:
            topic = fetch.FetchableTopicResponse(topic_id=self.topic_id, partitions=tuple(answers))
        return schema.FetchResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.none,
            session_id=i32(session),
            responses=(topic,) if answers else (),
        )

    def _list(self, request: Request) -> listed.ListOffsetsResponse:
        (topic,) = request.message.topics
        partitions = tuple(
            listed.ListOffsetsPartitionResponse(
                partition_index=one.partition_index,
                error_code=ErrorCode.none,
                timestamp=i64(-1),
                offset=i64(self._offset(one.partition_index, one.timestamp)),
                leader_epoch=i32(self.led[one.partition_index][1]),
            )
            for one in topic.partitions
        )
        found = listed.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)
        return listed.ListOffsetsResponse(throttle_time=NOT_THROTTLED, topics=(found,))

    def _offset(self, partition: int, time: int) -> int:
        log = self._log(partition)
        return log.start if time == EARLIEST else log.end

    def _epoch_ends(self, request: Request) -> ends.OffsetForLeaderEpochResponse:
        (topic,) = request.message.topics
        found = []
        for one in topic.partitions:
            self.compared.append((one.current_leader_epoch, one.leader_epoch))
            told = self.answers[one.partition].epoch_end
            epoch, end = told or (one.leader_epoch, self._log(one.partition).end)
            found.append(
                ends.EpochEndOffset(
                    error_code=ErrorCode.none,
                    partition=one.partition,
                    leader_epoch=i32(epoch),
                    end_offset=i64(end),
                )
            )
        result = ends.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found))
        return ends.OffsetForLeaderEpochResponse(throttle_time=NOT_THROTTLED, topics=(result,))

    # Append.

    def _produce(self, node: int, request: Request) -> Answer:
        with self.lock:
            [topic] = request.message.topic_data
            self.sent.append({one.index: bytes(one.records) for one in topic.partition_data})
            if self.cluster.away:
                return Raw(b"", close=True)
            if self.silent & self.sent[-1].keys():
                return Silence()
            answers = [self._append(node, one) for one in topic.partition_data]
        if any(isinstance(one, Lost) for one in answers):
            return Raw(b"", close=True)
        if any(isinstance(one, Unreadable) for one in answers):
            return b"\xff"
        found = produce.TopicProduceResponse(name=topic.name, partition_responses=tuple(answers))
        return produce.ProduceResponse(responses=(found,), throttle_time=NOT_THROTTLED)

    def _append(self, node: int, data: Any) -> Any:
        [batch] = split_batches(memoryview(bytearray(data.records))).batches
        assert (batch.base_offset, batch.leader_epoch, batch.attributes & 0x60) == (0, -1, 0)
        code, base_offset, fault = ErrorCode.none, -1, self.fault(data.index, batch)
        if self.led[data.index][0] != node:
            code = ErrorCode.not_leader_or_follower
        elif not batch.intact:
            code = ErrorCode.corrupt_message
        elif isinstance(fault, Refusal):
            code = fault.code
        elif not isinstance(fault, Lost) or fault.appended:
            code, base_offset = self.decide(TopicPartition(self.topic, data.index), batch)
        if isinstance(fault, Lost | Unreadable):
            return fault
        if isinstance(fault, Misreported):
            base_offset = fault.base_offset
        return produce.PartitionProduceResponse(
            index=i32(data.index),
            error_code=code,
            base_offset=i64(base_offset),
            record_errors=tuple(
                produce.BatchIndexAndErrorMessage(batch_index=i32(index))
                for index in (fault.indexes if isinstance(fault, Refusal) else ())
            ),
            error_message=fault.reason if isinstance(fault, Refusal) else None,
        )

    def decide(self, at: TopicPartition, batch: Batch) -> tuple[ErrorCode, int]:
        """Decide on a batch by the rules of Kafka's ``ProducerStateManager``."""
        key = at, batch.producer_id
        known = self.producers.get(key)
        if known is not None and batch.producer_epoch < known.epoch:
            return ErrorCode.invalid_producer_epoch, -1
        if known is None or batch.producer_epoch > known.epoch:
            if known is not None and batch.base_sequence:
                return ErrorCode.out_of_order_sequence_number, -1
            known = self.producers[key] = ProducerState(batch.producer_epoch)
        return known.decide(batch, lambda: self._write(at, batch))

    def _write(self, at: TopicPartition, batch: Batch) -> int:
        data = bytearray(batch.data)
        with self.cluster.changed:
            log = self.cluster.logs[at]
            base_offset = log.end
            data[:8] = base_offset.to_bytes(8, "big")
            log.store(base_offset, bytes(data), _records(batch))
            for offset in range(base_offset, log.end):
                self.writers[at, offset] = batch.producer_id
            self.cluster.changed.notify_all()
        return base_offset


def wire_cluster(serve: Serve, alias: str, partitions: int = 1, **more: Any) -> WireCluster:
    """Return two brokers with the topic ``orders``; ``more`` goes to ``WireCluster``."""
    cluster = FakeCluster(alias, FakeClock())
    cluster.create_topic(TOPIC, partitions)
    return WireCluster(serve, cluster, TOPIC, partitions, nodes=2, **more)


def _records(batch: Batch) -> list[FakeRecord]:
    found = map(decoded, stored_records(batch))
    return [FakeRecord(one.key, one.value, one.timestamp_ms, one.headers) for one in found]


def _small_batch(log: FakeLog, offset: int) -> bytes:
    """Return a batch of the records at this offset, if there is one.

    Batches with a flag, here the delete horizon, are copied as spans; others are not.
    """
    values: list[bytes] = []
    for record in (log.at(one) for one in range(offset, min(offset + _BATCH_RECORDS, log.end))):
        if record is MARKER:
            break
        values.append(record.value or b"")
    flags = _DELETE_HORIZON * (offset // _BATCH_RECORDS % 2)
    return bytes(record_batch(values, base_offset=offset, attributes=flags)) if values else b""
