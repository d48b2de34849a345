"""Brokers on sockets that serve a cluster in memory.

They follow Kafka's rules for leaders, fetch sessions, and producers' epochs and sequences. Tests
put faults into their answers.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
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
from support.fake_kafka import GONE, MARKER, FakeClock, FakeCluster, FakeLog, FakeRecord, offsets_of
from support.producer_state import ProducerState
from support.stored import content, log_batch

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.partitions import TopicPartition
from headrace.kafka.wire import (
    Batch,
    ClusterClient,
    ConnectionSettings,
    EventLoop,
    ProducerIdentity,
    StoredRecord,
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
    """The connection is closed instead of an answer."""

    appended: bool


@dataclass(frozen=True)
class Refusal:
    """The answer is an error. Nothing is appended."""

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
    """Leader epoch and end offset that the leader answers.

    By default they are the requested epoch and the end of the log.
    """
    diverging: list[tuple[int, int]] = field(default_factory=list)
    """Diverging epoch and its end in the next fetches, one for each."""
    preferred: int = -1
    """Preferred read replica that the leader returns, or -1."""
    uncommitted: int = 0
    """Number of the next answers with records that list no aborted transactions."""
    garbage: list[bytes] = field(default_factory=list)
    """Sent instead of batches, one for each fetch."""

    def take_uncommitted(self) -> bool:
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
        self.unanswered: set[int] = set()
        """Partitions whose Fetch and Produce requests are not answered."""
        self.lock = threading.RLock()

        self.answers = {partition: Answers() for partition in range(partitions)}
        self.delays_s: list[float] = []
        """Delays of a quota, one for each fetch, which is answered without data."""
        self.partition_bytes = 1 << 20
        """Maximum size of a partition's data in bytes. The last batch may exceed it."""
        self.read_back: Callable[[bytes], bytes | ErrorCode] = lambda batches: batches
        """Answer to a client that reads batches."""
        self.session_error = ErrorCode.none
        self.repeats_partition = False
        """Whether the next answer about several partitions names the first one twice."""
        self.fetches: list[tuple[int, Any]] = []
        """Broker and message of each Fetch."""
        self.epoch_requests: list[tuple[int, int]] = []
        """Current leader epoch, and the requested epoch."""
        self.sessions = 0
        self._sessions: dict[tuple[int, int], dict[int, Any]] = {}

        self.fault: Callable[[int, Batch], Fault] = lambda partition, batch: None
        """Fault of the next batch of a partition."""
        self.sent: list[dict[int, bytes]] = []
        """The batches of each request, by partition."""
        self.writers: dict[tuple[TopicPartition, int], int] = {}
        """Producer id, by partition and offset."""
        self.producer_states: dict[tuple[TopicPartition, int], ProducerState] = {}
        self.epochs: defaultdict[int, set[int]] = defaultdict(set)
        """Epochs that were given to each producer id."""
        self._ids = count(101)

        versions = served({FETCH: (4, 11), METADATA: (0, 9)} if kafka_2_4 else {})
        self.brokers = {
            node: serve(
                {key: partial(self._unless_away, one) for key, one in self._script(node).items()}
                | {_API_VERSIONS: lambda _: versions}
            )
            for node in range(1, nodes + 1)
        }
        self.live = {node: broker.port for node, broker in self.brokers.items()}

    def _script(self, node: int) -> Script:
        return {
            METADATA: self._metadata,
            FETCH: partial(self._fetch, node),
            LIST_OFFSETS: partial(self._list, node),
            EPOCH_ENDS: partial(self._epoch_ends, node),
            PRODUCE: partial(self._produce, node),
            INIT_PRODUCER_ID: self._identify,
        }

    def _unless_away(self, answer: Callable[[Request], Answer], request: Request) -> Answer:
        return Raw(b"", close=True) if self.cluster.away else answer(request)

    def _metadata(self, _: Request) -> Answer:
        name = f"id-of-{self.cluster.name}"
        return metadata_of(self.live, self.led, self.topic_id, self.topic, cluster_id=name)

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
        found = split_batches(memoryview(bytearray(b"".join(batches)))).batches
        contents = [_entries(one) for one in found]
        with self.cluster.changed:
            for log in (self.logs[partition] for partition in partitions):
                for batch, data, entries in zip(found, batches, contents, strict=True):
                    log.store(batch.base_offset, data, entries)
            self.cluster.changed.notify_all()

    def next_id(self) -> int:
        """Return a new producer id."""
        with self.lock:
            return next(self._ids)

    def _identify(self, _: Request) -> Answer:
        identity = ProducerIdentity(self.next_id(), 3)
        self.epochs[identity.producer_id].add(identity.epoch)
        return InitProducerIdResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.none,
            producer_id=ProducerId(identity.producer_id),
            producer_epoch=i16(identity.epoch),
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
            failed, number, wanted = self._session(node, message)
            if failed is not ErrorCode.none:
                return replace(self._fetched(request, 0, ()), error_code=failed)
            if self.unanswered & wanted.keys():
                return Silence()
            self.cluster.changed.wait_for(
                lambda: any(self._news(node, one) for one in wanted.values()),
                message.max_wait.total_seconds(),
            )
            answers = list[fetch.PartitionData]()
            for one in wanted.values():
                if message.session_epoch <= 0 or self._news(node, one):
                    whole = not any(answer.records for answer in answers)
                    answers.append(self._partition(node, one, whole=whole))
            if self.repeats_partition and len(answers) > 1:
                self.repeats_partition = False
                answers[1] = replace(answers[1], partition_index=answers[0].partition_index)
        return self._fetched(request, number, [self._as_read(one) for one in answers])

    def _session(self, node: int, message: Any) -> tuple[ErrorCode, int, dict[int, Any]]:
        told = {one.partition: one for topic in message.topics for one in topic.partitions}
        number = int(message.session_id)
        if message.session_epoch < 0:
            return ErrorCode.none, 0, told
        if message.session_epoch == 0:
            self.sessions = number = self.sessions + 1
            self._sessions[node, number] = told
        if (known := self._sessions.get((node, number))) is None:
            return ErrorCode.fetch_session_id_not_found, 0, {}
        for topic in message.forgotten_topics_data:
            for partition in topic.partitions:
                del known[partition]
        known |= told
        return ErrorCode.none, number, known

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

    def _partition(self, node: int, asked: Any, *, whole: bool) -> fetch.PartitionData:
        """Return the answer about one partition. ``whole``: do not cut its last batch."""
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
            last_stable_offset=i64(log.end),
            log_start_offset=i64(log.start),
            aborted_transactions=None
            if content and answers.take_uncommitted()
            else tuple(
                fetch.AbortedTransaction(producer_id=ProducerId(one), first_offset=i64(first))
                for one, first in log.aborted
            ),
            preferred_read_replica=BrokerId(answers.preferred if named else -1),
            records=Records(content if whole else content[: asked.partition_max_bytes]),
            **more,
        )

    def _batches(self, asked: Any) -> bytes:
        """Return the batches from an offset on."""
        log, content, offset = self._log(asked.partition), b"", asked.fetch_offset
        most = min(asked.partition_max_bytes, self.partition_bytes)
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

    def _list(self, node: int, request: Request) -> Answer:
        [topic] = request.message.topics
        assert topic.name == self.topic
        partitions = tuple(
            listed.ListOffsetsPartitionResponse(
                partition_index=one.partition_index,
                error_code=self._leads(node, one.partition_index),
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

    def _epoch_ends(self, node: int, request: Request) -> Answer:
        [topic] = request.message.topics
        assert topic.topic == self.topic
        found = []
        for one in topic.partitions:
            self.epoch_requests.append((one.current_leader_epoch, one.leader_epoch))
            told = self.answers[one.partition].epoch_end
            epoch, end = told or (one.leader_epoch, self._log(one.partition).end)
            found.append(
                ends.EpochEndOffset(
                    error_code=self._leads(node, one.partition),
                    partition=one.partition,
                    leader_epoch=i32(epoch),
                    end_offset=i64(end),
                )
            )
        result = ends.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found))
        return ends.OffsetForLeaderEpochResponse(throttle_time=NOT_THROTTLED, topics=(result,))

    def _leads(self, node: int, partition: int) -> ErrorCode:
        leader, _ = self.led[partition]
        return ErrorCode.none if leader == node else ErrorCode.not_leader_or_follower

    # Append.

    def _produce(self, node: int, request: Request) -> Answer:
        with self.lock:
            [topic] = request.message.topic_data
            assert topic.name == self.topic
            self.sent.append({one.index: bytes(one.records) for one in topic.partition_data})
            if self.unanswered & self.sent[-1].keys():
                return Silence()
            transactional = request.message.transactional_id is not None
            answers = [self._append(node, one, transactional) for one in topic.partition_data]
        if any(isinstance(one, Lost) for one in answers):
            return Raw(b"", close=True)
        if any(isinstance(one, Unreadable) for one in answers):
            return b"\xff"
        found = produce.TopicProduceResponse(name=topic.name, partition_responses=tuple(answers))
        return produce.ProduceResponse(responses=(found,), throttle_time=NOT_THROTTLED)

    def _append(self, node: int, data: Any, transactional: bool) -> Any:
        [batch] = split_batches(memoryview(bytearray(data.records))).batches
        assert (batch.base_offset, batch.leader_epoch, batch.attributes & 0x60) == (0, -1, 0)
        assert batch.transactional == transactional
        assert batch.producer_epoch in self.epochs[batch.producer_id]
        fault, base_offset = self.fault(data.index, batch), -1
        code = self._refusal(node, data.index, batch)
        if code is ErrorCode.none and isinstance(fault, Refusal):
            code = fault.code
        elif code is ErrorCode.none and (not isinstance(fault, Lost) or fault.appended):
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

    def _refusal(self, node: int, partition: int, batch: Batch) -> ErrorCode:
        if (code := self._leads(node, partition)) is not ErrorCode.none:
            return code
        if not batch.intact:
            return ErrorCode.corrupt_message
        is_dense = batch.last_offset + 1 == batch.record_count
        return ErrorCode.none if is_dense else ErrorCode.invalid_record

    def decide(self, at: TopicPartition, batch: Batch) -> tuple[ErrorCode, int]:
        """Decide on a batch by the rules of Kafka's ``ProducerStateManager``."""
        key = at, batch.producer_id
        known = self.producer_states.get(key)
        if known is not None and batch.producer_epoch < known.epoch:
            return ErrorCode.invalid_producer_epoch, -1
        if known is None or batch.producer_epoch > known.epoch:
            if known is not None and batch.base_sequence:
                return ErrorCode.out_of_order_sequence_number, -1
            known = self.producer_states[key] = ProducerState(batch.producer_epoch)
        return known.decide(batch, lambda: self._write(at, batch))

    def _write(self, at: TopicPartition, batch: Batch) -> int:
        data = bytearray(batch.data)
        with self.cluster.changed:
            log = self.cluster.logs[at]
            base_offset = log.end
            data[:8] = base_offset.to_bytes(8, "big")
            data[12:16] = self.led[at.partition][1].to_bytes(4, "big")
            log.store(base_offset, bytes(data), _entries(batch))
            for offset in range(base_offset, log.end):
                self.writers[at, offset] = batch.producer_id
            self.cluster.changed.notify_all()
        return base_offset


def wire_cluster(
    serve: Serve, alias: str, partitions: int = 1, *, kafka_2_4: bool = False
) -> WireCluster:
    """Return a cluster of two brokers with the topic ``orders``."""
    cluster = FakeCluster(alias, FakeClock())
    cluster.create_topic(TOPIC, partitions)
    return WireCluster(serve, cluster, TOPIC, partitions, nodes=2, kafka_2_4=kafka_2_4)


def _entries(batch: Batch) -> list[FakeRecord | None]:
    """Return what a log has at the offsets of a batch."""
    entries: list[FakeRecord | None] = [MARKER] * (batch.last_offset - batch.base_offset + 1)
    if not batch.control:
        for stored in stored_records(batch):
            one = decoded(stored)
            record = FakeRecord(one.key, one.value, one.timestamp_ms, one.headers)
            entries[stored.offset - batch.base_offset] = record
    return entries


def _small_batch(log: FakeLog, first: int) -> bytes:
    """Return a batch of up to two records from an offset on, or nothing.

    Batches with a flag, here the delete horizon, are copied as spans; others are not.
    """
    records: list[StoredRecord] = []
    for offset in range(first, min(first + _BATCH_RECORDS, log.end)):
        if (one := log.at(offset)) in (MARKER, GONE) or log.batch_at(offset):
            break
        headers = [(name.encode(), value) for name, value in one.headers or ()]
        records.append(StoredRecord(offset, one.timestamp_ms, content(one.key, one.value, headers)))
    flags = _DELETE_HORIZON * (first // _BATCH_RECORDS % 2)
    return bytes(log_batch(records, attributes=flags)) if records else b""
