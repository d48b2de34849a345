"""One producer of the load, from its first message to its last acknowledgement."""

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark import BarrierTaskContext

from headrace import logs
from headrace.api import Load, TopicPartition
from headrace.kafka import KafkaError, KafkaException, Message, journal, make_producer, translate
from headrace.mirror_test import MirrorTestRun, PartitionSummary, Stream, documents
from headrace_spark import messages
from headrace_spark.messages import LoadTopic
from headrace_spark.session import now_ms

_TICK_S = 0.01  # sleeping is imprecise by about 0.1 ms, 1 % of a tick
_BURST_S = 0.1  # messages, in seconds of load, that may be sent at once after a stall
UNBOUNDED_GRANT = 1_000


class Pace:
    """Limits the rate of one sender.

    A token bucket spreads the messages over each second. After a stall, a token bucket alone would
    allow its saved tokens in addition to the rate. Therefore the messages of the last second are
    also counted and limited to the rate.
    """

    def __init__(
        self,
        per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = per_second
        self._clock = clock
        self._sleep = sleep
        if per_second is not None:
            self._window_s = max(1.0, 1 / per_second)
            self._limit = int(per_second * self._window_s)
            self._burst = max(1.0, per_second * _BURST_S)
        self._tokens = 1.0
        self._last = clock()
        self._used: deque[tuple[float, int]] = deque()  # (used up at, messages), oldest first
        self._in_window = 0
        self._open = 0

    def grant(self) -> int:
        """Wait until messages may be sent, and return their number.

        The next call implies that these messages were sent.
        """
        if self._rate is None:
            return UNBOUNDED_GRANT
        now = self._clock()
        if self._open:
            self._used.append((now, self._open))
            self._in_window += self._open
            self._open = 0
        while True:
            while self._used and self._used[0][0] <= now - self._window_s:
                self._in_window -= self._used.popleft()[1]
            self._tokens = min(self._burst, self._tokens + (now - self._last) * self._rate)
            self._last = now
            allowed = min(int(self._tokens), self._limit - self._in_window)
            if allowed > 0:
                self._tokens -= allowed
                self._open = allowed
                return allowed
            self._sleep(_TICK_S)
            now = self._clock()


class PartitionTotals:
    """Acknowledged messages of one producer in one partition of a topic."""

    __slots__ = ("checksum", "count", "first", "last")

    def __init__(self) -> None:
        self.first = self.last = -1
        self.count = self.checksum = 0

    def add(self, seq: int, checksum: int) -> None:
        """Count an acknowledged message."""
        # Acknowledgements of one partition arrive in the order of sending.
        if not self.count:
            self.first = seq
        self.last = seq
        self.count += 1
        self.checksum += checksum


class SentStream:
    """Messages of one producer to one topic, numbered without gaps over all partitions."""

    def __init__(self, topic: LoadTopic, limit: int | None = None) -> None:
        """Create the stream. ``limit`` is the maximum number of messages, unlimited by default."""
        self.topic = topic
        self.sent = 0
        """Sequence number of the next message."""
        self.failed: set[int] = set()
        self.totals = [PartitionTotals() for _ in range(topic.partitions)]
        self._limit = limit

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged messages."""
        return sum(totals.count for totals in self.totals)

    def next_numbers(self, granted: int) -> range:
        """Return the sequence numbers to send if ``granted`` messages are allowed."""
        beyond = self.sent + granted
        return range(self.sent, beyond if self._limit is None else min(beyond, self._limit))

    def grow(self, partitions: int) -> None:
        """Add partitions up to the given number."""
        self.topic = replace(self.topic, partitions=partitions)
        self.totals += [PartitionTotals() for _ in range(partitions - len(self.totals))]

    def summary(self, producer: str) -> Stream:
        """Return the stream for the manifest."""
        return Stream(
            producer=producer,
            topic=self.topic.name,
            sent=self.sent,
            failed=tuple(messages.ranges(self.failed)),
            partitions=tuple(
                PartitionSummary(
                    partition=partition,
                    first=totals.first,
                    last=totals.last,
                    count=totals.count,
                    checksum=totals.checksum,
                )
                for partition, totals in enumerate(self.totals)
                if totals.count
            ),
        )


def first_streams(load: Load, load_topics: tuple[LoadTopic, ...], index: int) -> list[SentStream]:
    """Return the streams with which a producer begins.

    If the number of messages of the load is limited, each stream has its share of it.
    """
    parts, first = load.producers * len(load_topics), index * len(load_topics)
    return [
        SentStream(
            topic,
            None if load.messages is None else messages.share(load.messages, parts, first + number),
        )
        for number, topic in enumerate(load_topics)
    ]


@dataclass(frozen=True)
class Report:
    """Result of a producer. Its size does not grow with the number of records."""

    streams: tuple[Stream, ...]
    seconds: Counter[int]
    started_ms: int
    finished_ms: int
    errors: tuple[str, ...]
    was_ended: bool
    """True if the producer had more to send when a user ended the load."""


PROGRESS_S = 0.5
STUCK_S = 120.0
"""Time in seconds without acknowledgements after which messages in flight count as failed.

It is ten times as long as a leader election.
"""

_PRODUCER = {
    # The number limits small messages in flight, and the size limits large ones.
    "queue.buffering.max.messages": 20_000,
    "queue.buffering.max.kbytes": 65_536,
    "message.max.bytes": 64 << 20,  # the broker checks the topic's own limit
    "linger.ms": 10,
}


def run_sender(
    run: MirrorTestRun, load_topics: tuple[LoadTopic, ...], indices: Iterable[int]
) -> Iterator[Report]:
    """Run the senders of one Spark task, and yield their reports."""
    logs.configure()
    context = BarrierTaskContext.get()
    for index in indices:
        context.barrier()  # all producers begin together
        yield Sender(run, load_topics, index, context.attemptNumber()).send()


class Sender:
    """Sends one producer's part of the load."""

    def __init__(
        self, run: MirrorTestRun, load_topics: tuple[LoadTopic, ...], index: int, attempt: int
    ) -> None:
        load = run.test.spec.load
        self._run = run
        self._id = messages.producer_id(run.name, index, attempt)
        self._progress_key = journal.record_key(run.name, documents.progress_key(self._id))
        self._writer = messages.MessageFactory(
            self._id, load.message_size_bytes, load.message_format
        )
        self._producer = make_producer(run.source, _PRODUCER)
        self._tail = journal.JournalTail(run.source, run.name)
        self._is_to_end = self._was_ended = False
        self._changes: dict[str, int] = {}
        """Number of partitions of each changed topic, until this producer sends to the new ones."""
        # The tail may miss records that were written before it began to read.
        for key, value in journal.read_all(run.source, run.name).items():
            self._receive(key, value)
        rate = load.messages_per_second
        self._pace = Pace(None if rate is None else rate / load.producers)
        self._duration_s = None if load.is_endless else load.duration_seconds
        self._streams = first_streams(load, load_topics, index)
        self._errors: list[str] = []
        self._seconds: Counter[int] = Counter()
        self._counted = 0
        self._progress_at = 0.0
        self._moved_s = time.monotonic()
        self._started_ms = self._finished_ms = 0

    def send(self) -> Report:
        """Send all messages and wait for the acknowledgements. Stop at the first rejected message.

        A rejection is permanent, because the client retries transient errors.
        """
        self._started_ms = self._finished_ms = now_ms()
        end_s = None if self._duration_s is None else time.monotonic() + self._duration_s
        while not self._errors and (end_s is None or time.monotonic() < end_s):
            if self._is_to_end:
                self._was_ended = True
                break
            granted = self._pace.grant()
            before = self._sent()
            for stream in self._streams:
                self._send_some(stream, granted)
            self._observe(0)
            if self._sent() == before:
                break
        self._wait_for_the_rest()
        self._tail.close()
        return self._report()

    def _sent(self) -> int:
        return sum(stream.sent for stream in self._streams)

    def _send_some(self, stream: SentStream, granted: int) -> None:
        topic = stream.topic  # the topic may grow while these messages are sent
        for seq in stream.next_numbers(granted):
            if not self._send_one(stream, topic, seq):
                return
            stream.sent = seq + 1

    def _send_one(self, stream: SentStream, topic: LoadTopic, seq: int) -> bool:
        """Give one message to the client. Return False if the client cannot accept it."""
        partition = messages.partition_of(seq, topic.keys, topic.partitions)
        timestamp_ms = now_ms()
        message = self._writer.message(TopicPartition(topic.name, partition), seq, timestamp_ms)
        on_delivery = partial(
            self._delivered, stream.failed, stream.totals[partition], seq, message.checksum
        )
        while True:
            try:
                self._producer.produce(
                    topic.name,
                    message.value,
                    b"%d" % messages.key_of(seq, topic.keys),
                    partition=partition,
                    timestamp=timestamp_ms,
                    headers=message.headers,
                    on_delivery=on_delivery,
                )
                return True
            except BufferError:  # the maximum is in flight
                self._observe(0.05)
                if self._stuck():
                    return False
            except KafkaException as error:
                self._errors.append(str(translate(error, f"send to {topic.name}")))
                return False

    def _delivered(  # noqa: PLR0917 - the client adds the last two
        self,
        failed: set[int],
        acknowledged: PartitionTotals,
        seq: int,
        checksum: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        if error is None:
            acknowledged.add(seq, checksum)
            return
        failed.add(seq)
        if not self._errors:  # later messages in flight fail for the same reason
            self._errors.append(str(translate(error, f"send to {message.topic()}")))

    def _observe(self, wait_s: float) -> None:
        """Process acknowledgements, and report the progress every ``PROGRESS_S``."""
        self._producer.poll(wait_s)
        total = sum(stream.acknowledged for stream in self._streams)
        now = time.time()
        if total > self._counted:
            self._seconds[int(now)] += total - self._counted
            self._counted = total
            self._moved_s = time.monotonic()
            self._finished_ms = int(now * 1000)
        if now >= self._progress_at:
            for key, value in self._tail.poll(0):
                self._receive(key, value)
            self._change_topics()
            with suppress(BufferError):  # the queue is full; the next report follows soon
                self._producer.produce(
                    journal.TOPIC,
                    json.dumps(self._progress(total)).encode(),
                    self._progress_key,
                    partition=0,
                )
                self._progress_at = now + PROGRESS_S

    def _progress(self, acknowledged: int) -> dict[str, int]:
        return {
            "acknowledged": acknowledged,
            "sent": self._sent(),
            "failed": sum(len(stream.failed) for stream in self._streams),
        }

    def _receive(self, key: str, value: Any) -> None:
        """Process a request in the journal to end the load or to add partitions."""
        self._is_to_end |= key == documents.END_KEY
        if key == documents.TOPICS_KEY:
            self._changes = dict(value)

    def _change_topics(self) -> None:
        """Begin to send to new topics and partitions that the brokers already report."""
        for name in list(self._changes):
            with suppress(KafkaException):  # retried with the next report
                shown = self._producer.list_topics(name, timeout=1).topics[name]
                if len(shown.partitions) >= self._changes[name]:
                    self._change_topic(name, self._changes.pop(name))

    def _change_topic(self, name: str, partitions: int) -> None:
        for stream in self._streams:
            if stream.topic.name == name:
                stream.grow(partitions)
                return
        self._streams.append(SentStream(messages.added(self._run, name, partitions)))

    def _wait_for_the_rest(self) -> None:
        """Wait until no message is in flight. Stuck messages count as failed."""
        self._moved_s = time.monotonic()
        while len(self._producer) and not self._stuck():
            self._observe(0.05)
        self._producer.purge()
        self._producer.flush(5)
        self._progress_at = 0  # send the last report now
        self._observe(0)
        self._producer.flush(5)

    def _stuck(self) -> bool:
        stuck = time.monotonic() - self._moved_s > STUCK_S
        if stuck and not self._errors:
            self._errors.append(f"the source acknowledged nothing for {STUCK_S:.0f} s")
        return stuck

    def _report(self) -> Report:
        return Report(
            tuple(stream.summary(self._id) for stream in self._streams),
            self._seconds,
            self._started_ms,
            self._finished_ms,
            tuple(self._errors),
            self._was_ended,
        )
