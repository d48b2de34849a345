"""Internal topics on the target: compacted logs, readers and writers."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.api import ClusterAccess, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.datapath import Clients, ReadRecord, RecordConsumer
from headrace.errors import Retriable, Unreachable
from headrace.kafka import (
    COMPARED_TIMEOUT_S,
    Admin,
    KafkaError,
    Position,
    ReloadingClient,
    Renewal,
    Throttle,
    assign,
    ensure_topic,
    is_about_group,
    translate,
    translated,
)
from headrace.logs import get_logger
from headrace.timing import Clock

_IDLE_TIMEOUT_S = 10.0
_BATCH = 1_000


class TopicRecreated(Retriable):
    """A topic ends before the last record that was read from it."""


class TopicTail:
    """Reader of one partition from an offset on. Not thread-safe."""

    def __init__(
        self,
        topic: str,
        cluster: ClusterAccess,
        admin: Admin,
        clients: Clients,
        clock: Clock,
        *,
        partition: int = 0,
        start: int = 0,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Create a reader.

        ``admin`` is a client of ``cluster``, and ``start`` is the first offset to read.
        ``settings`` are further settings of the consumer.
        """
        self._at = TopicPartition(topic, partition)
        self._cluster, self._admin, self._clients, self._clock = cluster, admin, clients, clock
        self._position = start
        self._settings = settings
        self._consumer: RecordConsumer | None = None
        self._renewal = Renewal()
        self._throttle = Throttle(clock)

    def read(self) -> Iterator[ReadRecord]:
        """Yield the records since the last call; the first call begins at ``start``.

        Records that were yielded before an error are not read again.

        Raises:
            TopicRecreated: The topic was deleted and created again. Every further call raises it.
            Retriable: A broker does not respond.
            Throttled: A quota delays the records, and ``on_throttled`` of the clients raises it.
            Fatal: The permission to read is missing.
        """
        end = self._end()
        if end < self._position:
            # The end may be the answer of a broker of another cluster.
            self._admin.check_brokers(COMPARED_TIMEOUT_S)
            end = self._end()
        if end < self._position:
            self.close()
            raise TopicRecreated(
                f"topic {self._at.topic} on {self._admin.name} ends at {end}, and was read to "
                f"{self._position}: it was deleted and created again"
            )
        tried = f"read topic {self._at.topic} on {self._admin.name}"
        received_s = reported_s = self._clock.monotonic()
        while self._position < end:
            now_s = self._clock.monotonic()
            if self._throttle.active:
                if now_s - reported_s > _IDLE_TIMEOUT_S:
                    reported_s = now_s
                    self._clients.on_throttled(self._throttle.error(tried, self._position, end))
            elif now_s - received_s > _IDLE_TIMEOUT_S:
                self.close()
                raise Retriable(f"could not {tried}: no record within {_IDLE_TIMEOUT_S:.0f} s")
            with translated(tried):
                messages = self._opened().consume(_BATCH, 0.2)
            for message in messages:
                yield from self._taken(message, tried)
            if messages:
                received_s = self._clock.monotonic()

    def _end(self) -> int:
        return self._admin.offsets([self._at], Position.LATEST)[self._at]

    def close(self) -> None:
        """Close the client. The next read continues at the current offset."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    def _taken(self, message: ReadRecord, tried: str) -> Iterator[ReadRecord]:
        offset = message.offset()
        if (error := message.error()) is None:
            if offset is not None and offset >= self._position:
                self._position = offset + 1
                yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, offset or 0)
        elif not is_about_group(error):
            self.close()
            raise translate(error, tried)

    def _opened(self) -> RecordConsumer:
        if self._consumer is not None and self._renewal.due:
            self.close()
        if self._consumer is None:
            self._renewal = Renewal(self._cluster)
            self._consumer = self._clients.consumer(self._cluster, self._settings, self._throttle)
            assign(self._consumer, [(self._at, self._position)])
        return self._consumer


_ANSWER_S = 10.0


class Keyed(NamedTuple):
    """Record to write."""

    key: bytes
    value: bytes | None
    """Value, or None for a tombstone."""
    headers: dict[str, str | bytes | None] | None = None


class TopicWriter:
    """Writer of a topic on the target. Not thread-safe."""

    def __init__(self, topic: str, context: FlowContext, *, by_key: bool = False) -> None:
        """Create a writer.

        ``by_key`` chooses the partition as Java's clients do. Otherwise it is partition 0.
        """
        self._topic, self._target = topic, context.target
        self._partition = -1 if by_key else 0
        settings = {"partitioner": "murmur2"}
        self._producer = ReloadingClient(
            context.target_access, lambda: context.clients.producer(context.target_access, settings)
        )

    def write(self, records: Iterable[Keyed], what: str) -> None:
        """Write records, and wait until the target has acknowledged all of them.

        ``what`` names the records in messages.

        Raises:
            Retriable: A response is missing. Some records may have been written nevertheless.
            HeadraceError: A record was rejected.
        """
        tried = f"write {what} to topic {self._topic} on {self._target.name}"
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                errors.append(error)

        producer = self._producer.get()
        with translated(tried):
            for key, value, headers in records:
                producer.produce(
                    self._topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=delivered,
                    headers=headers,
                )
        left = producer.flush(_ANSWER_S)
        if errors:
            raise translate(errors[0], tried)
        if left:
            producer.purge()
            raise Retriable(f"could not {tried}: no answer within {_ANSWER_S:.0f} s")


log = get_logger(__name__)


class CompactedLog:
    """Compacted topic with one partition, which is read and written. Not thread-safe."""

    def __init__(
        self,
        topic: str,
        context: FlowContext,
        what: str,
        *,
        earlier: str = "",
        because: str = "or not all of it would be read",
        consequence: str = "",
    ) -> None:
        """Create the object without reading.

        Args:
            topic: Name of the topic.
            context: Flow that uses it.
            what: Noun for messages, such as "ACLs".
            earlier: Name of the topic in earlier versions of headrace; empty if it did not change.
            because: Reason why the topic must have one partition, for messages.
            consequence: Effect of a deletion of the topic, for messages.
        """
        self._topic, self._context, self._what = topic, context, what
        self._earlier = earlier
        self._because, self._consequence = because, consequence
        self._writer = TopicWriter(topic, context)
        self._tail: TopicTail | None = None

    @property
    def at_start(self) -> bool:
        """True if the next read yields all records of the topic."""
        return self._tail is None

    def read(self) -> Iterator[ReadRecord]:
        """Yield the records since the last call; create the topic if it is missing.

        After a deletion of the topic, the next call begins at the start of the new topic. Raise the
        errors of the creation and of ``TopicTail.read``.
        """
        context = self._context
        if self._tail is None:
            ensure_topic(
                context.target,
                self._topic,
                1,
                {"cleanup.policy": "compact"},
                because=self._because,
                consequence=self._consequence,
            )
            self._take_over()
            self._tail = self._tail_of(self._topic)
        try:
            yield from self._tail.read()
        except Unreachable:
            raise
        except Retriable as error:
            recreated = isinstance(error, TopicRecreated)
            if recreated or not context.target.describe([self._topic]):
                self.close()
            raise

    def exists(self) -> bool:
        """Return whether the topic exists, under its present or earlier name.

        Unlike ``read``, it creates nothing.
        """
        return not self._context.target.topics().keys().isdisjoint((self._topic, self._earlier))

    def write(self, records: Iterable[Keyed]) -> None:
        """Write records, and wait until the target has acknowledged all of them.

        Raise the errors of ``TopicWriter.write``.
        """
        if records := list(records):
            self._writer.write(records, self._what)

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    def _take_over(self) -> None:
        """Move the records of an earlier version's topic, which has another name.

        After a crash between the two writes, the records are moved again.
        """
        earlier = self._earlier
        if not earlier or earlier not in self._context.target.topics():
            return
        found: dict[bytes, bytes | None] = {}
        tail = self._tail_of(earlier)
        try:
            for message in tail.read():
                if (key := message.key()) is not None:
                    found[key] = message.value()
        finally:
            tail.close()
        kept = {key: value for key, value in found.items() if value is not None}
        if kept:
            self.write(Keyed(key, value) for key, value in kept.items())
            emptied = TopicWriter(earlier, self._context)
            emptied.write((Keyed(key, None) for key in kept), self._what)
            log.info("taken over", from_topic=earlier, to_topic=self._topic, records=len(kept))

    def _tail_of(self, topic: str) -> TopicTail:
        context = self._context
        return TopicTail(
            topic, context.target_access, context.target, context.clients, context.clock
        )
