"""A cluster that batches are fetched from, and a reader of it."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import response as fetch_11
from kio.schema.fetch.v13 import response as fetch
from kio.schema.list_offsets.v7 import response as listed
from kio.schema.offset_for_leader_epoch.v4 import response as ends
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import Records, i32, i32Timedelta, i64
from support.batches import record_batch
from support.fake_broker import (
    NOT_THROTTLED,
    TOPIC_ID,
    FakeBroker,
    Raw,
    Request,
    Serve,
    Silence,
    Told,
    metadata_of,
    served,
)
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.datapath import TokenBucket
from headrace.datapath.chunk import HeldResponse, Memory
from headrace.datapath.fetch import Reader
from headrace.datapath.locate import SourcePartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import ClusterClient, ConnectionSettings, EventLoop, split_batches
from headrace.kafka.wire.protocol import converted

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, EPOCH_ENDS = 1, 2, 3, 18, 23
TOPIC = "orders"
_EARLIEST = -2
_VERSION_11 = 11


@dataclass
class Log:
    """Log of one partition: batches from offset ``start`` on."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    next: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    error: Callable[[int, Any], ErrorCode] = lambda node, asked: ErrorCode.none
    """Error with which a node answers a request; it sends nothing else then."""
    epoch_end: tuple[int, int] | None = None
    """Leader epoch and end offset that the leader answers; by default as the reader has them."""
    diverging: tuple[int, int] | None = None
    diverging_once: tuple[int, int] | None = None
    preferred: int = -1
    """A follower that the leader names."""
    uncommitted: int = 0
    """Number of answers with records that are those to a read of uncommitted records."""
    garbage: list[bytes] = field(default_factory=list)
    """Sent instead of batches, one for each request."""

    def append(self, *values: bytes, **more: Any) -> None:
        """Append a batch with these values."""
        self.batches.append(bytes(record_batch(values, base_offset=self.next, **more)))
        self.next += len(values)

    def answers_uncommitted(self) -> bool:
        """Count an answer with records, and return whether it lists no aborted transactions."""
        self.uncommitted -= 1
        return self.uncommitted >= 0

    def from_offset(self, offset: int, limit: int) -> bytes:
        """Return whole batches, as brokers send them, from the one with that offset on."""
        if self.garbage:
            return self.garbage.pop()
        content = b""
        for batch in self.batches:
            if int.from_bytes(batch[:8]) + last_delta(batch) >= offset:
                content += batch
        return content[:limit]


def last_delta(batch: bytes) -> int:
    """Return the last offset delta in a batch's header."""
    return int.from_bytes(batch[23:27])


class FakeSource:
    """Brokers 1 and 2; each partition of ``led`` has its log on both."""

    def __init__(self, serve: Serve, partitions: int = 1, *, kafka_2_4: bool = False) -> None:
        """Start the brokers.

        ``kafka_2_4``: they have neither topic ids nor a Fetch that compares epochs.
        """
        versions = served({FETCH: (4, 11), METADATA: (0, 9)} if kafka_2_4 else {})
        self.compared: list[tuple[int, int]] = []
        """Current leader epoch, and the requested epoch."""
        self.led: Told = dict.fromkeys(range(partitions), (1, 4))
        self.topic_id = TOPIC_ID
        self.logs = {partition: Log() for partition in range(partitions)}
        self.fetches: list[tuple[int, Any]] = []
        """Node, and its request."""
        self.silent: set[int] = set()
        """Partitions whose fetches are not answered."""
        self.delays_s: list[float] = []
        """Delays of a quota, one for each request, with which brokers answer without data."""
        self.sessions = 0
        self.session_error = ErrorCode.none
        self.twice = False
        """Whether the next answer about several partitions names the first one twice."""
        self._sessions: dict[int, dict[int, Any]] = {}
        self._changed = threading.Condition()
        self.brokers: dict[int, FakeBroker] = {}
        self.live: dict[int, int] = {}
        for node in (1, 2):
            self.brokers[node] = serve(
                {
                    METADATA: lambda _: metadata_of(self.live, self.led, self.topic_id),
                    FETCH: lambda request, node=node: self._fetch(node, request),
                    LIST_OFFSETS: self._list,
                    EPOCH_ENDS: self._epoch_ends,
                    API_VERSIONS: lambda _: versions,
                }
            )
            self.live[node] = self.brokers[node].port

    def cluster(self, loop: EventLoop, settings: ConnectionSettings | None = None) -> ClusterClient:
        """Return a client of it."""
        return ClusterClient(loop, self.access, settings)

    @property
    def access(self) -> ClusterAccess:
        """Return the access to it."""
        servers = ",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values())
        return ClusterAccess(ClusterSpec(alias="east", bootstrap_servers=servers))

    def append(self, *values: bytes, partition: int = 0, **more: Any) -> None:
        """Append a batch, and send it to clients that wait for data."""
        with self._changed:
            self.logs[partition].append(*values, **more)
            self._changed.notify_all()

    def store(self, batches: Sequence[bytes], end: int) -> None:
        """Append the same batches to each partition, whose log then ends at ``end``."""
        with self._changed:
            for log in self.logs.values():
                log.batches.extend(batches)
                log.next = end
            self._changed.notify_all()

    def _fetch(self, node: int, request: Request) -> Any:
        message = request.message
        with self._changed:
            self.fetches.append((node, message))
            if self.delays_s:
                delay = i32Timedelta.parse(timedelta(seconds=self.delays_s.pop(0)))
                empty = self._response(request, ErrorCode.none, 0, ())
                return replace(empty, throttle_time=delay)
            if self.session_error is not ErrorCode.none:
                code, self.session_error = self.session_error, ErrorCode.none
                return self._response(request, code, 0, ())
            number, wanted = self._session(message)
            if self.silent & wanted.keys():
                return Silence()
            self._changed.wait_for(
                lambda: any(self._news(node, one) for one in wanted.values()),
                message.max_wait.total_seconds(),
            )
            answers = [
                self._answer(node, one)
                for one in wanted.values()
                if not number or self._news(node, one)
            ]
            if self.twice and len(answers) > 1:
                self.twice = False
                answers[1] = replace(answers[1], partition_index=answers[0].partition_index)
        return self._response(request, ErrorCode.none, number, answers)

    def _response(
        self, request: Request, code: ErrorCode, session: int, answers: Sequence[Any]
    ) -> Any:
        if request.version == _VERSION_11:
            old = [
                converted(
                    one, fetch_11.PartitionData, without=["diverging_epoch", "current_leader"]
                )
                for one in answers
            ]
            topic = fetch_11.FetchableTopicResponse(topic=TopicName(TOPIC), partitions=tuple(old))
            return fetch_11.FetchResponse(
                throttle_time=NOT_THROTTLED,
                error_code=code,
                session_id=i32(session),
                responses=(topic,) if answers else (),
            )
        topics = (fetch.FetchableTopicResponse(topic_id=self.topic_id, partitions=tuple(answers)),)
        return fetch.FetchResponse(
            throttle_time=NOT_THROTTLED,
            error_code=code,
            session_id=i32(session),
            responses=topics if answers else (),
        )

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
        log = self.logs[asked.partition]
        refused = self._code(node, asked) is not ErrorCode.none
        named = log.preferred not in {-1, node}
        return refused or named or log.diverging is not None or asked.fetch_offset < log.next

    def _code(self, node: int, asked: Any) -> ErrorCode:
        log = self.logs[asked.partition]
        if node not in {self.led[asked.partition][0], log.preferred}:
            return ErrorCode.not_leader_or_follower
        if (code := log.error(node, asked)) is not ErrorCode.none:
            return code
        inside = log.start <= asked.fetch_offset <= log.next
        return ErrorCode.none if inside else ErrorCode.offset_out_of_range

    def _answer(self, node: int, asked: Any) -> Any:
        log = self.logs[asked.partition]
        code = self._code(node, asked)
        named = log.preferred not in {-1, node}
        diverges = log.diverging is not None or log.diverging_once is not None
        nothing = code is not ErrorCode.none or named or diverges
        content = b"" if nothing else log.from_offset(asked.fetch_offset, asked.partition_max_bytes)
        more: dict[str, Any] = {}
        diverging, log.diverging_once = log.diverging or log.diverging_once, None
        if diverging is not None:
            epoch, end = diverging
            more["diverging_epoch"] = fetch.EpochEndOffset(epoch=i32(epoch), end_offset=i64(end))
        return fetch.PartitionData(
            partition_index=i32(asked.partition),
            error_code=code,
            high_watermark=i64(log.next),
            last_stable_offset=i64(log.next),
            log_start_offset=i64(log.start),
            aborted_transactions=None
            if content and log.answers_uncommitted()
            else tuple(
                fetch.AbortedTransaction(producer_id=ProducerId(one), first_offset=i64(first))
                for one, first in log.aborted
            ),
            preferred_read_replica=BrokerId(log.preferred if named else -1),
            records=Records(content),
            **more,
        )

    def _epoch_ends(self, request: Request) -> Any:
        (topic,) = request.message.topics
        found = []
        for one in topic.partitions:
            self.compared.append((one.current_leader_epoch, one.leader_epoch))
            log = self.logs[one.partition]
            epoch, end = log.epoch_end or (one.leader_epoch, log.next)
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

    def _list(self, request: Request) -> Any:
        (topic,) = request.message.topics
        return listed.ListOffsetsResponse(
            throttle_time=NOT_THROTTLED,
            topics=(
                listed.ListOffsetsTopicResponse(
                    name=TopicName(TOPIC),
                    partitions=tuple(
                        listed.ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=ErrorCode.none,
                            timestamp=i64(-1),
                            offset=i64(log.start if one.timestamp == _EARLIEST else log.next),
                            leader_epoch=i32(4),
                        )
                        for one in topic.partitions
                        for log in [self.logs[one.partition_index]]
                    ),
                ),
            ),
        )


class Reading:
    """A reader of it, and its batches."""

    def __init__(
        self,
        loop: EventLoop,
        source: FakeSource,
        rack: str = "",
        settings: ConnectionSettings | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.loop, self.source = loop, source
        self.batches: dict[int, list[tuple[int, int]]] = {}
        """First and last offset of each batch taken, by partition."""
        self.aborted: list[tuple[int, int]] = []
        self.ends: dict[int, int] = {}
        self.problems: dict[int, HeadraceError] = {}
        self.said: list[str] = []
        self.damage: list[str] = []
        """Reasons why answers were requested again."""
        self.unread: set[int] = set()
        """Partitions that are not to be read."""
        self.memory = memory or Memory()
        self.held: list[HeldResponse] | None = None
        """Responses whose memory is not released, if they are to be kept."""
        self.cluster = source.cluster(loop, settings)
        self.reader = Reader(self.cluster, self.memory, self, TokenBucket(), rack)

    def open(self, partition: int = 0, offset: int = 0, leader_epoch: int = -1) -> None:
        """Read from there on."""
        self.reader.open(TopicPartition(TOPIC, partition), offset, leader_epoch)

    def until(self, condition: Callable[[], object]) -> None:
        """Run the loop."""
        deadline_s = self.loop.now_s() + WITHIN_S
        while not condition():
            assert self.loop.now_s() < deadline_s, (self.batches, self.problems, self.said)
            self.loop.run_once(0.2)

    def close(self) -> None:
        """Close the reader and its connections."""
        self.reader.close()
        self.cluster.close()

    # Callbacks of the reader.

    def ready(self) -> bool:
        return True

    def readable(self, ats: Iterable[TopicPartition]) -> set[TopicPartition]:
        unread = self.unread | self.problems.keys()
        return {at for at in ats if at.partition not in unread}

    def held_back(self, at: TopicPartition) -> bool:
        return False

    def stuck(self) -> bool:
        return False

    def saw_end(self, at: TopicPartition, end: int) -> None:
        self.ends[at.partition] = end

    def take(
        self,
        source: SourcePartition,
        records: memoryview,
        aborted: Sequence[tuple[int, int]],
        held: HeldResponse,
    ) -> None:
        if source.at.partition in self.unread:
            return
        self.aborted += aborted
        for batch in split_batches(records).batches:
            taken = self.batches.setdefault(source.at.partition, [])
            taken.append((batch.base_offset, batch.last_offset))
            source.advance(batch.last_offset + 1, batch.leader_epoch)
        if self.held is not None:
            held.use()
            self.held.append(held)

    def taken(self) -> None:
        pass

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        self.problems[at.partition] = error

    def damaged(self, at: TopicPartition, why: str) -> None:
        self.damage.append(why)

    def away(self, error: HeadraceError) -> None:
        self.said.append(str(error))


__all__ = ["FakeSource", "Log", "Raw", "Reading"]
