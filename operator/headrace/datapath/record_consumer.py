"""Consumer of single records, for connections whose cluster id is compared.

librdkafka does not compare cluster ids. Progress, offset syncs and checkpoints of a broker of
another cluster at a known address (KIP-1242) would therefore be believed.
"""

import time
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from headrace.api import ClusterAccess, TopicPartition
from headrace.datapath.chunk import Passage, judged
from headrace.errors import HeadraceError
from headrace.kafka import (
    SMALL_FETCH_BYTES,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    Throttle,
)
from headrace.kafka.wire import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClusterClient,
    CorruptBatch,
    EventLoop,
    Fetched,
    FetchOutcome,
    FetchPosition,
    Reply,
    UnreadableBatch,
    decoded,
    fetch_call,
    fetch_outcome,
    list_offsets,
    split_batches,
    start,
    stored_records,
)
from headrace.timing import Backoff

_FETCH_BYTES = 1 << 20
_RESPONSE_BYTES = 50 << 20
_MAX_WAITING = 10_000
"""Number of records that wait for ``poll`` above which nothing more is fetched."""
_ROOM_S = 0.05


class ReadRecord(NamedTuple):
    """Record or event, with the methods of confluent_kafka's ``Message`` that headrace uses."""

    at: TopicPartition
    position: int
    record_key: bytes | None = None
    record_value: bytes | None = None
    record_headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    append_time: bool = False
    """Whether the broker has set the timestamp."""
    problem: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self.problem

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self.position

    def key(self) -> bytes | None:
        return self.record_key

    def value(self) -> bytes | None:
        return self.record_value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.record_headers)

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and the Unix time in ms."""
        kind = TIMESTAMP_LOG_APPEND_TIME if self.append_time else TIMESTAMP_CREATE_TIME
        return kind, self.timestamp_ms


class _Place(Protocol):
    """Partition and first offset, as confluent_kafka's ``TopicPartition``."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...


class RecordConsumer:
    """Consumer of assigned partitions. Not thread-safe: it works during ``poll`` and ``consume``.

    It has the methods of confluent_kafka's ``Consumer`` that headrace uses. If an offset does not
    exist, the partition is read from its first offset on.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        settings: Mapping[str, object] | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        """Create a consumer without connections.

        ``isolation.level`` is the only one of librdkafka's ``settings`` that has an effect.
        ``throttle`` receives the delays of brokers. A new consumer may share it with
        the consumer that it replaces.
        """
        level = (settings or {}).get("isolation.level")
        self._isolation = READ_UNCOMMITTED if level == "read_uncommitted" else READ_COMMITTED
        self._throttle = throttle or Throttle(time)
        self._loop = EventLoop()
        self._cluster = ClusterClient(self._loop, cluster)
        self._offsets: dict[TopicPartition, int] = {}
        self._at_end: dict[TopicPartition, int] = {}
        """Offset at which the end of a partition was last reported."""
        self._read: deque[ReadRecord] = deque()
        self._following: set[int] = set()
        """Brokers from which records are fetched."""
        self._searching = self._closed = False

    def assign(self, places: Iterable[_Place], /) -> None:
        """Read these partitions, each from its offset on. Call it once."""
        self._offsets = {TopicPartition(one.topic, one.partition): one.offset for one in places}
        self._follow_leaders()

    def incremental_unassign(self, places: Iterable[_Place], /) -> None:
        """Read no more of these partitions. Records that were fetched are still returned."""
        for one in places:
            self._offsets.pop(TopicPartition(one.topic, one.partition), None)

    def poll(self, timeout_s: float) -> ReadRecord | None:
        """Return the next record or event. Return None if none arrives within ``timeout_s``."""
        deadline_s = time.monotonic() + timeout_s
        while not self._read and (left_s := deadline_s - time.monotonic()) > 0:
            self._loop.run_once(left_s)
        return self._read.popleft() if self._read else None

    def consume(self, count: int, timeout_s: float) -> list[ReadRecord]:
        """Return up to ``count`` records and events, and wait up to ``timeout_s`` for the first."""
        first = self.poll(timeout_s)
        found = [] if first is None else [first]
        while self._read and len(found) < count:
            found.append(self._read.popleft())
        return found

    def close(self) -> None:
        self._closed = True
        self._cluster.close()
        self._loop.close()

    def _follow_leaders(self) -> None:
        """Fetch from each partition's leader, and look for leaders that are not known."""
        led = {at: self._cluster.view.leadership(at) for at in self._offsets}
        for leader in {one.leader for one in led.values() if one} - self._following:
            self._following.add(leader)
            _run(self._follow(leader))
        if None in led.values() and not self._searching:
            self._searching = True
            _run(self._search())

    async def _search(self) -> None:
        backoff, topics = Backoff(0.05, 1.0), {at.topic for at in self._offsets}
        while not self._closed:
            try:
                view = await self._cluster.refresh(topics)
            except HeadraceError:
                view = self._cluster.view
            if all(map(view.leadership, self._offsets)):
                break
            self._follow_leaders()
            await self._loop.sleep(backoff.next_s())
        self._searching = False
        if not self._closed:
            self._follow_leaders()

    async def _follow(self, leader: int) -> None:
        """Fetch from a broker until it leads none of the partitions, or fails."""
        while not self._closed and (wanted := self._wanted(leader)):
            try:
                connection = await self._cluster.connection(leader, "records")
                most = SMALL_FETCH_BYTES if self._throttle.seen else _RESPONSE_BYTES
                call = fetch_call(wanted, isolation=self._isolation, max_bytes=most)
                response = await connection.send(call)
                self._throttle.announce(response.throttle_ms / 1000)
                try:
                    answers = [await self._take(one, wanted) for one in response.partitions]
                finally:
                    response.release()
            except HeadraceError:
                answers = [False]
            if not all(answers):
                await self._refreshed()
            while len(self._read) >= _MAX_WAITING and not self._closed:
                await self._loop.sleep(_ROOM_S)
        self._following.discard(leader)
        if not self._closed:
            self._follow_leaders()

    def _wanted(self, leader: int) -> list[FetchPosition]:
        view, wanted = self._cluster.view, []
        for at, offset in self._offsets.items():
            led = view.leadership(at)
            if led is not None and led.leader == leader:
                id_ = view.topics[at.topic].id
                wanted.append(
                    FetchPosition(
                        id_, at.partition, offset, _FETCH_BYTES, led.epoch, topic=at.topic
                    )
                )
        return wanted

    async def _refreshed(self) -> None:
        await self._loop.sleep(0.2)
        try:
            await self._cluster.refresh({at.topic for at in self._offsets})
        except HeadraceError:
            return

    async def _take(self, one: Fetched, positions: Iterable[FetchPosition]) -> bool:
        """Take an answer about a partition. Return False if it must be requested again later."""
        names = {asked.topic_id: asked.topic for asked in positions}
        at = TopicPartition(one.topic or names.get(one.topic_id, ""), one.partition)
        if at not in self._offsets:
            return bool(at.topic)  # it was unassigned during the request
        match fetch_outcome(one.error):
            case FetchOutcome.FETCHED:
                return self._read_batches(at, one)
            case FetchOutcome.OUT_OF_RANGE:
                listed = await list_offsets(self._cluster, [at], EARLIEST)
                self._offsets[at] = listed.all()[at].offset
                return True
            case FetchOutcome.MOVED:
                return False
        self._failed(at, KafkaError(one.error.value))
        return False

    def _read_batches(self, at: TopicPartition, one: Fetched) -> bool:
        data = memoryview(bytes(one.records))
        try:
            for each in judged(
                split_batches(data).batches, start=self._offsets[at], aborted=one.aborted or ()
            ):
                batch = each.batch
                if each.passage is not Passage.SKIP:
                    for stored in stored_records(batch):
                        if stored.offset >= self._offsets[at]:
                            found = decoded(stored)
                            self._read.append(
                                ReadRecord(
                                    at,
                                    found.offset,
                                    found.key,
                                    found.value,
                                    found.headers,
                                    found.timestamp_ms,
                                    batch.magic == 2 and batch.log_append_time,
                                )
                            )
                self._offsets[at] = max(self._offsets[at], batch.last_offset + 1)
        except (CorruptBatch, UnreadableBatch):
            self._failed(at, KafkaError(KafkaError._BAD_MSG))
            return False
        committed = self._isolation == READ_COMMITTED
        end = one.last_stable_offset if committed else one.high_watermark
        offset = self._offsets[at]
        if offset >= end and self._at_end.get(at) != offset:
            self._at_end[at] = offset
            self._failed(at, KafkaError(KafkaError._PARTITION_EOF))
        return True

    def _failed(self, at: TopicPartition, problem: KafkaError) -> None:
        self._read.append(ReadRecord(at, self._offsets[at], problem=problem))


def _run(coroutine: Coroutine[Reply[Any], None, None]) -> None:
    """Run a coroutine in the loop; ``poll`` raises its errors."""
    start(coroutine).then(lambda reply: reply.result())
