"""The record mover: consume and produce, record by record, through librdkafka."""

from collections.abc import Callable, Mapping, Set

from headrace.api import ClusterAccess
from headrace.api.partitions import TopicPartition
from headrace.errors import Fatal, Retriable
from headrace.kafka import (
    KafkaError,
    Message,
    Renewal,
    assign_more,
    fetched_end,
    make_consumer,
    make_producer,
    translate,
    truncated,
    unassign,
    words,
)
from headrace.logs import get_logger
from headrace.movers.in_flight_window import Copied, InFlightWindow

log = get_logger(__name__)

# Backpressure: stop reading above these, so that a slow target costs bounded memory. A batch adds
# at most what the consumer has prefetched (16 MiB), and the producer's own queue (100,000 records)
# is larger than both together, so that it never refuses a record.
_MAX_IN_FLIGHT_RECORDS = 20_000
_MAX_IN_FLIGHT_BYTES = 32 << 20
_BATCH_RECORDS = 2_000
_PREFETCH_KIB = 16_384


class OffsetGone(Fatal):
    """The source no longer holds the offset that was to be copied next."""

    def __init__(
        self, at: TopicPartition, offset: int, message: str, *, truncated: bool = False
    ) -> None:
        """``truncated``: the broker said so, whatever the log holds at that offset now."""
        super().__init__(message)
        self.at = at
        self.offset = offset
        self.truncated = truncated


class RecordMover:
    """Copies partitions of one task: key, value, headers, timestamp and partition stay as they are.

    One consumer and one producer of its own, so that what it has queued can be dropped without
    touching another task. Not thread-safe: one loop calls ``move`` again and again.
    """

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        on_error: Callable[[str], None],
        copied: Copied,
    ) -> None:
        """``target_topic`` names topics on the target; ``on_error`` hears that brokers are away;
        ``copied`` is counted on."""
        self._source = source
        self._target = target
        self._target_topic = target_topic
        self._renewal = Renewal(source, target)
        self._consumer = make_consumer(
            source,
            {
                "queued.max.messages.kbytes": _PREFETCH_KIB,
                "fetch.message.max.bytes": 1 << 20,
            },
            on_error=lambda error: on_error(f"{source.alias}: {words(error)}"),
        )
        self._producer = make_producer(
            target, on_error=lambda error: on_error(f"{target.alias}: {words(error)}")
        )
        self._copied = copied
        self.windows: dict[TopicPartition, InFlightWindow] = {}
        self._leaving: frozenset[TopicPartition] = frozenset()

    def add(self, positions: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Start copying these partitions: from a source offset, after a record of a leader epoch.

        An epoch of -1 is unknown.
        """
        for at, (position, leader_epoch) in positions.items():
            target_topic = self._target_topic(at.topic)
            self.windows[at] = InFlightWindow(
                at, position, target_topic, leader_epoch, self._copied
            )
        self._read(positions.keys())

    def stop_reading(self, partitions: Set[TopicPartition]) -> None:
        """Send nothing more of these; what is in flight is still heard of."""
        self._leaving |= partitions

    def remove(self, partitions: Set[TopicPartition]) -> None:
        """Forget these, once nothing of them is in flight."""
        for at in partitions:
            del self.windows[at]
        self._leaving -= partitions
        unassign(self._consumer, partitions)

    def move(self, wait_s: float) -> int:
        """One turn: read what is there (waiting at most ``wait_s`` for it), send it, hear acks.

        Returns the number of records sent. Raises ``OffsetGone``, ``Fatal`` or ``Retriable``.
        """
        self.hear(0)
        if self._full():
            self.hear(wait_s)
            return 0
        first = self._consumer.poll(wait_s)
        if first is None:
            return 0
        sent = self._handle(first)
        for message in self._consumer.consume(_BATCH_RECORDS, 0):
            sent += self._handle(message)
        return sent

    @property
    def outdated(self) -> bool:
        """Whether passwords or certificates have changed since its clients were made."""
        return self._renewal.due

    @property
    def in_flight(self) -> int:
        """Records sent and not yet acknowledged."""
        return sum(flight.in_flight for flight in self.windows.values())

    def keep(self, wanted: Set[TopicPartition]) -> None:
        """Read on those that were to be left and are wanted again, from what is sent."""
        if back := self._leaving & wanted:
            self._leaving -= back
            unassign(self._consumer, back)
            self._read(back)

    def listen(self) -> None:
        """Take in what the target acknowledged; a refusal waits for ``hear``."""
        self._producer.poll(0)

    def hear(self, wait_s: float = 0.0) -> None:
        """Hear what the target acknowledged; raises for a record that it refused."""
        self._producer.poll(wait_s)
        for flight in self.windows.values():
            if flight.error is not None:
                raise translate(
                    flight.error,
                    f"write {flight.at} offset {flight.acknowledged} of {self._source.alias} "
                    f"to {flight.target_topic} on {self._target.alias}",
                )

    def drop_queued(self, timeout_s: float) -> None:
        """Drop what was not sent yet, and hear of what was: the last before ``close``.

        For a loop that stood still, as others may have taken its partitions meanwhile, and for one
        that needs new clients. Raises ``Retriable`` when the target does not answer for what is on
        its way within ``timeout_s``.
        """
        self._producer.purge(in_queue=True, in_flight=False)
        if left := self._producer.flush(timeout_s):
            raise Retriable(
                f"{self._target.alias} did not acknowledge {left} records that were on their way"
            )
        for flight in self.windows.values():
            flight.rewind()

    def lag_records(self, at: TopicPartition) -> int:
        """Records on the source that are not acknowledged on the target, as last fetched."""
        end = self._end(at)
        return max(0, end - self.windows[at].acknowledged) if end is not None else 0

    def lag_s(self, at: TopicPartition, now_s: float) -> float:
        """Age of the oldest record not yet acknowledged, in seconds; 0 when there is none."""
        flight = self.windows[at]
        oldest = flight.oldest_timestamp_ms
        if oldest is None or not self.lag_records(at):
            return 0.0
        return max(0.0, now_s - oldest / 1000)

    def close(self) -> None:
        """Drop what is queued and leave."""
        self._producer.purge()
        self._producer.flush(1)
        self._consumer.close()

    def _read(self, partitions: Set[TopicPartition]) -> None:
        windows = {at: self.windows[at] for at in partitions}
        assign_more(
            self._consumer,
            [(at, flight.position) for at, flight in windows.items()],
            {at: flight.leader_epoch for at, flight in windows.items()},
        )

    def _full(self) -> bool:
        in_flight_bytes = sum(flight.bytes_in_flight for flight in self.windows.values())
        return self.in_flight > _MAX_IN_FLIGHT_RECORDS or in_flight_bytes > _MAX_IN_FLIGHT_BYTES

    def _end(self, at: TopicPartition) -> int | None:
        return fetched_end(self._consumer, at)

    def _handle(self, message: Message) -> int:
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        flight = self.windows.get(at)
        if flight is None or at in self._leaving:
            return 0  # it still lay in the consumer's queue
        if (error := message.error()) is not None:
            self._handle_error(flight, message, error)
            return 0
        offset = message.offset()
        if offset is None or offset < flight.position:
            return 0  # fetched before the position was set back
        _, timestamp_ms = message.timestamp()
        key, value = message.key(), message.value()
        self._producer.produce(
            flight.target_topic,
            value,
            key,
            at.partition,
            on_delivery=flight.delivered,
            timestamp=max(0, timestamp_ms),
            headers=message.headers(),
        )
        flight.sent(offset, timestamp_ms, len(key or b"") + len(value or b""))
        leader_epoch = message.leader_epoch()
        flight.leader_epoch = -1 if leader_epoch is None else leader_epoch
        return 1

    def _handle_error(self, flight: InFlightWindow, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            flight.passed(message.offset() or 0)
            return
        where = f"{flight.at} of {self._source.alias}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise OffsetGone(
                flight.at, flight.position, f"{where}: {error.str()}", truncated=truncated(error)
            )
        failure = translate(error, f"read {where}")
        if isinstance(failure, Retriable):
            log.info("read failed, client retries", partition=str(flight.at), reason=str(failure))
            return
        raise failure
