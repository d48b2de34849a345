"""Fetch of a lane's partitions, with one request at a time to each broker.

A broker holds a request until it has data. Received data are delivered at once. The next request is
sent before the data are sent to the target.
"""

import itertools
import struct
from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Protocol

from headrace.api import TopicPartition
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.chunk import MIN_BYTES, HeldResponse, Memory
from headrace.datapath.locate import Locator, SourcePartition, diverged
from headrace.datapath.slow_partitions import MARGIN_S, TOGETHER, Apart
from headrace.datapath.unanswered import Silence
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    ClusterClient,
    Connection,
    CorruptBatch,
    Fetched,
    FetchOutcome,
    FetchPosition,
    FetchResponse,
    FetchSession,
    Reply,
    Unanswered,
    fetch_call,
    fetch_outcome,
    led_by,
    read_batch,
    refusal,
    start,
)
from headrace.logs import get_logger

log = get_logger(__name__)

_SHORT_WAIT_MS = 10
"""``max_wait_ms`` of a fetch that leaves out a partition at its memory limit.

That partition can only be fetched after this fetch has ended.
"""
_LARGEST_BYTES = 104_857_600  # socket.request.max.bytes: no batch is larger
_BATCH_START = struct.Struct(">qi")  # base offset, and how many bytes follow
_CORRUPT_TIMES, _CORRUPT_REST_S = 3, 0.2
"""Number of attempts for a corrupt response, and the pause between them in seconds. A network fault
rarely damages a response twice. A damaged log fails each time."""


class Sink(Protocol):
    """Receiver of fetched data: the pipeline of a lane."""

    def ready(self) -> bool:
        """Return whether the lane reads any data now."""
        ...

    def readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions that may be read now. Call it only while ``ready`` returns True."""
        ...

    def held_back(self, at: TopicPartition) -> bool:
        """Return whether a partition would be read if less of its data were in flight."""
        ...

    def stuck(self) -> bool:
        """Return whether the target makes no progress on any partition with records in flight."""
        ...

    def saw_end(self, at: TopicPartition, end: int) -> None:
        """Receive the high watermark of the source partition."""
        ...

    def take(
        self,
        source: SourcePartition,
        records: memoryview,
        aborted: Sequence[tuple[int, int]],
        response: HeldResponse,
    ) -> None:
        """Receive data that begin with a whole batch.

        The sink calls ``advance`` of the partition, and the next fetch begins after the accepted
        data.

        Raises:
            CorruptBatch: A batch is damaged.
        """
        ...

    def taken(self) -> None:
        """Receive the end of a response, after all its data."""
        ...

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        """Receive an error of a partition that is no longer fetched."""
        ...

    def damaged(self, at: TopicPartition, why: str) -> None:
        """Receive the reason why a partition's data are damaged. The caller fetches them again."""
        ...

    def away(self, error: HeadraceError) -> None:
        """Receive the error of an unreachable broker. The fetch is retried."""
        ...


class _Broker:
    """Requests to one broker for one group of partitions."""

    __slots__ = (
        "asked",
        "asked_s",
        "behind",
        "busy",
        "connection",
        "group",
        "most_bytes",
        "node",
        "purpose",
        "session",
    )

    def __init__(self, node: int, group: int, purpose: str) -> None:
        self.node, self.group, self.purpose = node, group, purpose
        self.connection: Connection | None = None
        self.session: FetchSession[TopicPartition] = FetchSession()
        self.busy = False
        self.asked: dict[TopicPartition, FetchPosition] = {}
        """Partitions in the current request, with the requested offsets."""
        self.asked_s = 0.0
        """Time of the current request, on the loop's clock."""
        self.most_bytes = 0
        """Maximum size of the current response in bytes."""
        self.behind = True
        """Whether the broker may have more data than its last response contained."""


_numbers = itertools.count()


class Reader:
    """Reader of one lane. Call it in the thread of its loop."""

    def __init__(
        self,
        cluster: ClusterClient,
        memory: Memory,
        sink: Sink,
        bandwidth: TokenBucket,
        rack: str = "",
    ) -> None:
        """Create a reader without partitions.

        ``rack`` is the driver's rack. A leader may name a follower in this rack to fetch from.
        """
        self._cluster, self._loop = cluster, cluster.loop
        self._memory, self._sink, self._rack = memory, sink, rack
        self._purpose = f"fetch-{next(_numbers)}"
        self._partitions: dict[TopicPartition, SourcePartition] = {}
        self._brokers: dict[tuple[int, int], _Broker] = {}
        settings = cluster.settings
        self._apart = Apart(
            settings.fetch_wait_ms / 1000 + min(MARGIN_S, settings.request_timeout_s)
        )
        self.silence = Silence(
            self._loop, self._partitions, is_asked=self._is_asked, readable=self._readable
        )
        self._locator = Locator(
            cluster, self._partitions, found=self.wake, stop=self._stop, away=sink.away
        )
        self._bandwidth = bandwidth
        self._closed = self._pumping = self._blocked = False
        self._left_out = False
        """Whether a partition was not readable at the last attempt to fetch."""

    def open(self, at: TopicPartition, position: int, leader_epoch: int) -> None:
        """Fetch a partition from an offset on."""
        self._partitions[at] = SourcePartition(
            at,
            position,
            leader_epoch,
            self._cluster.settings.partition_bytes,
            now_s=self._loop.now_s(),
        )
        self._locator.search()

    def close_partition(self, at: TopicPartition) -> None:
        """Stop fetching a partition, and ignore data in flight."""
        self._partitions.pop(at, None)
        self._apart.forget(at)

    def rewind(self, at: TopicPartition, position: int, leader_epoch: int) -> None:
        """Fetch from another offset; ``leader_epoch`` belongs to the offset before."""
        if (source := self._partitions.get(at)) is not None:
            source.position, source.checked_epoch = position, leader_epoch
            source.wanted = None

    def wake(self) -> None:
        """Fetch partitions that have become readable, after the current call has returned."""
        if not self._pumping and not self._closed:
            self._pumping = True
            self._loop.call_later(0.0, self._pump)

    def wake_left_out(self) -> None:
        """Fetch partitions that were not readable at the last attempt."""
        if self._left_out:
            self.wake()

    def close(self) -> None:
        """Stop fetching. The cluster client closes the connections."""
        self._closed = True
        self._locator.close()
        self.silence.close()
        self._partitions.clear()

    # Requests

    def _pump(self) -> None:
        self._pumping = False
        if self._closed:
            return
        sink = self._sink
        self._left_out = not sink.ready()
        if self._left_out:
            return
        idle: dict[tuple[int, int], list[SourcePartition]] = {}
        waiting: set[tuple[int, int]] = set()
        busy = {key for key, broker in self._brokers.items() if broker.busy}
        group = self._apart.group
        free = [
            source
            for source in self._partitions.values()
            if source.node is not None
            and not source.resting
            and (source.node, group(source.at)) not in busy
        ]
        readable = sink.readable([source.at for source in free]) if free else set()
        for source in free:
            at, node = source.at, source.node
            assert node is not None
            key = node, group(at)
            if at in readable:
                idle.setdefault(key, []).append(source)
                continue
            self._left_out = True
            if sink.held_back(at):
                waiting.add(key)
        if idle and (wait_s := self._bandwidth.wait_s()) > 0:
            self._try_again_in(wait_s)
            return
        for key, sources in idle.items():
            if not (room := self._memory.room(stuck=self._sink.stuck())):
                self._wait_for_room()
                return
            self._fetch(self._broker(*key), sources, room, short=key in waiting)

    def _wait_for_room(self) -> None:
        self._memory.wait(self.wake)
        self._try_again_in(1.0)  # by then, partitions may count as stuck

    def _try_again_in(self, wait_s: float) -> None:
        if not self._blocked:
            self._blocked = True
            self._loop.call_later(wait_s, self._try_again)

    def _try_again(self) -> None:
        self._blocked = False
        self.wake()

    def _broker(self, node: int, group: int) -> _Broker:
        if (broker := self._brokers.get((node, group))) is None:
            purpose = self._purpose if group == TOGETHER else f"{self._purpose}-{group}"
            broker = self._brokers[node, group] = _Broker(node, group, purpose)
        return broker

    def _of(self, broker: _Broker) -> list[SourcePartition]:
        """Return the partitions of a broker's group."""
        node, group = broker.node, broker.group
        return [
            source
            for source in self._partitions.values()
            if source.node == node and self._apart.group(source.at) == group
        ]

    def _leave(self, broker: _Broker) -> None:
        """Close the connection of a group that no longer exists."""
        self._brokers.pop((broker.node, broker.group), None)
        if broker.connection is not None:
            broker.connection.close()

    def _is_asked(self, source: SourcePartition) -> bool:
        """Return True if the source owes an answer about a partition."""
        if source.node is None or source.resting:
            return True
        broker = self._brokers.get((source.node, self._apart.group(source.at)))
        return broker is not None and broker.busy and source.at in broker.asked

    def _readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition] | None:
        return self._sink.readable(ats) if self._sink.ready() else None

    def _fetch(
        self, broker: _Broker, sources: Iterable[SourcePartition], room: int, *, short: bool
    ) -> None:
        broker.busy = True
        connection = broker.connection
        if connection is None or connection.closed_by is not None:
            opening = start(self._cluster.connection(broker.node, broker.purpose))
            opening.then(partial(self._connected, broker))
            return
        if not connection.compares_epochs:
            if uncompared := [source for source in sources if source.uncompared]:
                self._locator.compare(uncompared)
            sources = [source for source in sources if not source.resting]
            if not sources:
                broker.busy = False
                return
            for source in sources:  # from now on, this leader's log is read
                source.compared_at_epoch = source.epoch
        broker.asked = {source.at: source.wanted or source.want() for source in sources}
        settings = self._cluster.settings
        together = broker.group == TOGETHER  # a slow group would reserve much memory for minutes
        much = settings.fetch_max_bytes if broker.behind and together else MIN_BYTES
        broker.most_bytes = int(min(much, room, self._bandwidth.request_bytes))
        self._memory.ask(broker.most_bytes)
        wanted, session = broker.session.begin(broker.asked)
        request = fetch_call(
            wanted,
            max_wait_ms=_SHORT_WAIT_MS if short else settings.fetch_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=broker.most_bytes,
            session=session,
            rack=self._rack,
        )
        broker.asked_s = self._loop.now_s()
        timeout_s = self._apart.timeout_s(broker.group)
        connection.send(request, timeout_s=timeout_s).then(partial(self._answered, broker))

    def _connected(self, broker: _Broker, reply: Reply[Connection]) -> None:
        broker.busy = False
        if reply.error is not None:
            self._failed(broker, reply.error)
            return
        broker.connection = reply.result()
        broker.session.lost()
        self.wake()

    def _failed(self, broker: _Broker, error: BaseException) -> None:
        """Handle a connection that was lost or could not be opened."""
        if not isinstance(error, HeadraceError):
            raise error
        broker.connection = None
        if self._closed:
            return
        self._sink.away(error)
        for source in self._of(broker):
            source.failed_s = self._loop.now_s()
            source.lost_leader()
        self._locator.search()

    # Responses

    def _answered(self, broker: _Broker, reply: Reply[FetchResponse]) -> None:
        broker.busy = False
        self._memory.answered(broker.most_bytes)
        if reply.error is not None:
            broker.session.lost()
            late = [one.at for one in self._of(broker) if one.at in broker.asked]
            self._failed(broker, reply.error)
            if isinstance(reply.error, Unanswered) and late:
                self._apart.expired(broker.group, late)
                self._leave(broker)
            return
        response = reply.result()
        if self._apart.answered(broker.group, self._loop.now_s() - broker.asked_s):
            self._leave(broker)
        if self._closed or not broker.session.answered(response):
            log.debug("fetch session lost", node=broker.node, why=response.error.name)
            response.release()
            self._loop.call_later(self._locator.backoff.next_s(), self.wake)
            return
        self.silence.heard((broker.node, broker.group), broker.asked)
        held = HeldResponse(response, self._memory)
        self._bandwidth.spend(held.size)
        broker.behind = held.size >= broker.most_bytes // 2
        answers: dict[TopicPartition, Fetched] = {}
        for fetched in response.partitions:
            topic = fetched.topic or self._locator.topic(fetched.topic_id)
            at = TopicPartition(topic, fetched.partition)
            if at in answers:
                self._sink.damaged(at, "it names the partition twice")
                broker.session.lost()
                answers.clear()
                break
            answers[at] = fetched
        for at, fetched in answers.items():
            source, asked = self._partitions.get(at), broker.asked.get(at)
            if asked is None:  # nobody requested it: the request was damaged
                broker.session.lost()
            # The partition may have been closed, or opened again at another offset.
            if source is not None and asked is not None and asked.offset == source.position:
                self._handle(source, fetched, held, broker.most_bytes)
                broker.behind |= fetched.last_stable_offset > source.position
        held.release()
        # Request more data first, so that the source works while the target receives this data.
        self._pump()
        self._sink.taken()

    def _handle(
        self, source: SourcePartition, fetched: Fetched, response: HeldResponse, most_bytes: int
    ) -> None:
        if (outcome := fetch_outcome(fetched.error)) is not FetchOutcome.FETCHED:
            self._refused(source, fetched, outcome)
            return
        self._locator.backoff.reset()
        diverging, source.diverging = source.diverging, fetched.diverging
        if fetched.diverging is not None:
            if fetched.diverging != diverging:
                source.again()
                return
            self._stop(source, diverged(self._cluster.name, source, *fetched.diverging))
            return
        if fetched.preferred_replica >= 0 and source.node != fetched.preferred_replica:
            if fetched.preferred_replica in self._cluster.view.brokers:
                source.follow(fetched.preferred_replica, self._loop.now_s())
            else:
                source.lost_leader()
                self._locator.search()
            return
        self._sink.saw_end(source.at, fetched.high_watermark)
        try:
            self._take(source, fetched, response, most_bytes)
        except CorruptBatch as error:
            self._corrupt(source, str(error))

    def _take(
        self, source: SourcePartition, fetched: Fetched, response: HeldResponse, most_bytes: int
    ) -> None:
        records = fetched.records
        if (first := read_batch(records, 0, 0)) is not None:
            # Move the partition to the end, so that other partitions are requested first.
            self._partitions[source.at] = self._partitions.pop(source.at)
            self._ask_for(source, len(first.data))
            before, source.uncommitted = source.uncommitted, fetched.aborted is None
            if source.uncommitted and not before:
                self._sink.damaged(source.at, "it is the answer to a read of uncommitted records")
                source.again()
                return
            self._sink.take(source, records, fetched.aborted or (), response)
        elif len(records) >= _BATCH_START.size:
            _, length = _BATCH_START.unpack_from(records)
            self._ask_for(source, _BATCH_START.size + length)
        elif fetched.last_stable_offset > source.position and (
            max(response.size, source.max_bytes) <= most_bytes // 2
        ):
            # Brokers leave out a batch that is larger than the limit, unless it is the response's
            # first.
            self._ask_for(source, 2 * source.max_bytes)

    def _ask_for(self, source: SourcePartition, size: int) -> None:
        if size > source.max_bytes:
            source.max_bytes, source.wanted = min(size, _LARGEST_BYTES), None

    def _corrupt(self, source: SourcePartition, why: str) -> None:
        source.corrupt += 1
        where = f"{source.at} offset {source.position} of {self._cluster.name}"
        if source.corrupt < _CORRUPT_TIMES:
            self._sink.damaged(source.at, why)
            source.again()
            source.resting = True
            self._loop.call_later(_CORRUPT_REST_S, partial(self._rested, source))
            return
        self._stop(
            source,
            Fatal(
                f"could not read {where}: {why}; the log is damaged there, or in a form that this "
                "client cannot read, or the broker's answer was damaged each time: compare with "
                "kafka-dump-log on the partition's brokers"
            ),
        )

    def _rested(self, source: SourcePartition) -> None:
        source.resting = False
        self.wake()

    def _refused(self, source: SourcePartition, fetched: Fetched, outcome: FetchOutcome) -> None:
        if fetched.leader is not None:  # KIP-951
            self._cluster.view = led_by(self._cluster.view, source.at, *fetched.leader)
        tried = f"read {source.at} offset {source.position} of {self._cluster.name}"
        error = refusal(fetched.error, tried)
        match outcome:
            case FetchOutcome.OUT_OF_RANGE:
                self._locator.out_of_range(source)
            case FetchOutcome.CORRUPT:
                self._corrupt(source, str(error))
            case FetchOutcome.REFUSED if not isinstance(error, Retriable):
                self._stop(source, error)
            case _:
                log.info("read failed, trying again", partition=str(source.at), why=str(error))
                source.failed_s = self._loop.now_s()
                source.lost_leader()
                self._locator.search()

    def _stop(self, source: SourcePartition, error: HeadraceError) -> None:
        source.resting = True
        self._sink.problem(source.at, error)
