"""A cluster that batches are appended to, with the rules of brokers for producers' sequences."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import response as fetch
from kio.schema.produce.v9 import response as produce
from kio.schema.types import TopicName
from kio.static.primitive import Records, i32, i64
from support.batches import record_batch
from support.fake_broker import (
    NOT_THROTTLED,
    TOPIC_ID,
    Answer,
    FakeBroker,
    Raw,
    Request,
    Serve,
    Silence,
    Told,
    metadata_of,
)
from support.patience import WITHIN_S
from support.producer_state import ProducerState
from support.wire_kafka import epoch_ends

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.datapath.append import Appender
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    Batch,
    ClusterClient,
    EventLoop,
    ProducerIdentity,
    decoded,
    split_batches,
    stored_records,
)

PRODUCE, FETCH, METADATA, EPOCH_ENDS = 0, 1, 3, 23
TOPIC = "orders"
IDENTITY = ProducerIdentity(77, 3)


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


@dataclass
class Log:
    """Log of one partition."""

    values: list[bytes] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """The first of each batch."""
    producer: ProducerState = field(default_factory=lambda: ProducerState(IDENTITY.epoch))

    def stored(self, offset: int) -> bytes:
        """Return the batch that begins at an offset."""
        batch = bytearray(self.batches[self.offsets.index(offset)].data)
        batch[:8] = offset.to_bytes(8, "big")
        return bytes(batch)

    def append(self, batch: Batch) -> tuple[ErrorCode, int]:
        """Append a batch if its producer may, and return the error and the offset."""
        return self.producer.decide(batch, lambda: self._write(batch))

    def _write(self, batch: Batch) -> int:
        base_offset = len(self.values)
        self.values += [decoded(record).value or b"" for record in stored_records(batch)]
        self.batches.append(batch)
        self.offsets.append(base_offset)
        return base_offset


class FakeTarget:
    """Brokers 1 and 2; each partition of ``led`` has its log on both."""

    def __init__(self, serve: Serve, partitions: int = 1) -> None:
        self.led: Told = dict.fromkeys(range(partitions), (1, 4))
        self.logs = {partition: Log() for partition in range(partitions)}
        self.fault: Callable[[int, Batch], Fault] = lambda partition, batch: None
        self.silent = False
        """Whether requests to produce are not answered, and nothing is appended."""
        self.sent: list[dict[int, bytes]] = []
        """The batches of each request, by partition."""
        self.read_back: Callable[[bytes], bytes | ErrorCode] = lambda stored: stored
        """Answer to a client that reads a stored batch."""
        self.reads = 0
        self.truncated_at: dict[int, int] = {}
        """End offsets of logs that lost acknowledged records above."""
        self._lock = threading.Lock()
        self.brokers: dict[int, FakeBroker] = {}
        self.live: dict[int, int] = {}
        for node in (1, 2):
            self.brokers[node] = serve(
                {
                    METADATA: lambda _: metadata_of(self.live, self.led),
                    PRODUCE: lambda request, node=node: self._produce(node, request),
                    FETCH: self._fetch,
                    EPOCH_ENDS: self._ends,
                }
            )
            self.live[node] = self.brokers[node].port

    def cluster(self, loop: EventLoop) -> ClusterClient:
        """Return a client of this target."""
        spec = ClusterSpec(
            alias="west",
            bootstrap_servers=",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values()),
        )
        return ClusterClient(loop, ClusterAccess(spec))

    def _produce(self, node: int, request: Request) -> Answer:
        with self._lock:
            [topic] = request.message.topic_data
            self.sent.append({one.index: bytes(one.records) for one in topic.partition_data})
            if self.silent:
                return Silence()
            answers = [self._append(node, one) for one in topic.partition_data]
            if any(isinstance(one, Lost) for one in answers):
                return Raw(b"", close=True)
            if any(isinstance(one, Unreadable) for one in answers):
                return b"\xff"
            return produce.ProduceResponse(
                responses=(
                    produce.TopicProduceResponse(
                        name=TopicName(TOPIC), partition_responses=tuple(answers)
                    ),
                ),
                throttle_time=NOT_THROTTLED,
            )

    def _fetch(self, request: Request) -> Any:
        """Return the batch of one partition that begins at the requested offset."""
        with self._lock:
            self.reads += 1
            [[asked]] = [one.partitions for one in request.message.topics]
            found = self.read_back(self.logs[asked.partition].stored(asked.fetch_offset))
        partition = fetch.PartitionData(
            partition_index=asked.partition,
            error_code=found if isinstance(found, ErrorCode) else ErrorCode.none,
            high_watermark=i64(0),
            last_stable_offset=i64(0),
            aborted_transactions=(),
            records=Records(b"" if isinstance(found, ErrorCode) else found),
        )
        topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,))
        return fetch.FetchResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.none,
            session_id=i32(0),
            responses=(topic,),
        )

    def _ends(self, request: Request) -> Any:
        with self._lock:
            return epoch_ends(request, lambda at, _: self._end(at.partition))

    def _end(self, partition: int) -> int:
        end = len(self.logs[partition].values)
        return min(end, self.truncated_at.get(partition, end))

    def _append(self, node: int, data: Any) -> Any:
        [batch] = split_batches(memoryview(bytearray(data.records))).batches
        assert (batch.base_offset, batch.leader_epoch, batch.attributes & 0x70) == (0, -1, 0)
        assert (batch.producer_id, batch.producer_epoch) == (77, 3)
        code, base_offset, fault = ErrorCode.none, -1, self.fault(data.index, batch)
        if self.led[data.index][0] != node:
            code = ErrorCode.not_leader_or_follower
        elif not batch.intact:
            code = ErrorCode.corrupt_message
        elif isinstance(fault, Refusal):
            code = fault.code
        elif fault != Lost(appended=False):
            code, base_offset = self.logs[data.index].append(batch)
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


class Appending:
    """An appender to it, with its reports."""

    def __init__(
        self,
        loop: EventLoop,
        target: FakeTarget,
        leaders: Leaders | None = None,
        request_admission: Callable[[TopicPartition], None] | None = None,
    ) -> None:
        """Create an appender on a fake target.

        ``leaders`` are the leaders of another writer, to be shared. ``request_admission`` is passed
        to ``Appender``.
        """
        self.loop, self.target = loop, target
        self.acknowledged: dict[int, list[tuple[int, int, int]]] = {}
        """First and next source offset, and target offset, by partition."""
        self.failed: dict[int, HeadraceError] = {}
        self.waiting: list[str] = []
        self.damaged: list[str] = []
        self.made: list[int] = []
        self.released: list[int] = []
        self.next_offsets = dict.fromkeys(target.logs, 1000)
        """Source offset of the next batch, by partition."""
        self.leaders = leaders or Leaders(target.cluster(loop))
        self.cluster = self.leaders.cluster
        self.appender = Appender(
            loop,
            self.leaders,
            IDENTITY,
            self._acknowledge,
            self._fail,
            waiting=self.waiting.append,
            damaged=lambda at, why: self.damaged.append(f"{at}: {why}"),
            request_admission=request_admission,
        )

    def add(self, *values: bytes, partition: int = 0, content: bytearray | None = None) -> None:
        """Add a batch with these values; source offsets begin at 1000."""
        offset = self.next_offsets[partition]
        content = content or record_batch(values, base_offset=offset, producer_id=5)
        [batch] = split_batches(memoryview(content)).batches
        number = len(self.made)
        self.made.append(number)
        self.next_offsets[partition] = batch.last_offset + 1
        outgoing = Outgoing(
            batch, batch.last_offset + 1, release=lambda: self.released.append(number)
        )
        self.appender.append(TopicPartition(TOPIC, partition), outgoing)

    def become_known(self, partition: int = 0) -> None:
        """Append a batch: until then, one at a time is sent."""
        self.add(b"first", partition=partition)
        self.until_done()
        self.target.sent.clear()

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the loop."""
        deadline_s = self.loop.now_s() + WITHIN_S
        self.appender.flush()
        while not condition():
            assert self.loop.now_s() < deadline_s, (
                self.acknowledged,
                self.failed,
                self.waiting,
                self.appender.pending,
            )
            self.loop.run_once(0.2)

    def until_done(self) -> None:
        """Wait until each added batch is acknowledged, or its partition failed."""
        self.until(lambda: not self.appender.pending)

    def close(self) -> None:
        """Close the appender and its connections."""
        self.appender.close()
        self.leaders.close()
        self.cluster.close()

    def _acknowledge(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        reported = (outgoing.first_offset, outgoing.next_offset, base_offset)
        self.acknowledged.setdefault(at.partition, []).append(reported)

    def _fail(self, at: TopicPartition, error: HeadraceError) -> None:
        assert at.partition not in self.failed, "reported twice"
        self.failed[at.partition] = error
