"""Consumer of the probe that runs in a Spark task, and the latencies that it measures."""

import json
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from threading import Event, Lock, Thread
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark import BarrierTaskContext

from headrace import logs
from headrace.api import ClusterAccess, Partitioning, TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import (
    Admin,
    Consumer,
    Message,
    Position,
    assign,
    journal,
    make_consumer,
    make_producer,
)
from headrace.mirror_test import MirrorTestRun, Second, documents, quantile, two_digits
from headrace_spark import messages
from headrace_spark.live_metrics import SequenceCounts
from headrace_spark.session import now_ms, steady_ms

MAX_PER_SECOND = 20_000
"""Maximum rate of the load, per consumer, at which the latency of the mirror alone is measured.

Above this rate, the consumer of the source takes CPU time from the consumer of the target in the
same process, and both are late.
"""

Starts = dict[TopicPartition, int]
"""Partitions with the offset at which to begin."""


class WatchAssignment(NamedTuple):
    """Partitions that one consumer reads on each cluster."""

    target: Starts
    source: Starts


def share(run: MirrorTestRun, target: Starts, origins: Starts) -> WatchAssignment:
    """Return the target partitions to read, with the source partitions of their messages.

    If the mirror does not preserve partitions, all ``origins`` are source partitions to read.
    """
    if not origins or run.test.spec.partitioning is not Partitioning.PRESERVED:
        return WatchAssignment(target, origins)
    mirrored = {TopicPartition(run.first_topics[at.topic], at.partition): at for at in origins}
    return WatchAssignment(target, {at: origins[at] for to in target if (at := mirrored.get(to))})


def consumers(run: MirrorTestRun, partitions: int) -> int:
    """Return the number of consumers for a number of target partitions.

    There are as many consumers as producers, but at most one for each partition.
    """
    return min(run.test.spec.load.producers, partitions)


def times_both(run: MirrorTestRun, partitions: int) -> bool:
    """Return True if a consumer can read both clusters without falling behind."""
    load = run.test.spec.load
    preserved = run.test.spec.partitioning is Partitioning.PRESERVED
    readers = consumers(run, partitions) if preserved else 1
    rate = load.messages_per_second
    return rate is not None and rate * len(run.first_topics) <= MAX_PER_SECOND * readers


BEHIND_MS = 1_000
"""A consumer that has not had to wait for messages for this time, in ms, may be behind."""
_MAX_MESSAGES_PER_CALL = 500
"""Maximum number of available messages to fetch in one call."""


class PolledRecords(NamedTuple):
    """Records that a consumer received from one partition in one call."""

    at: TopicPartition
    records: list[Message]
    next_offset: int
    """Offset after the records, and after transaction markers at the partition's end.

    0 if unknown.
    """


class Following:
    """Consumer that knows whether it keeps up with new records.

    A consumer that never waits for messages does not keep up. Its messages have waited for the
    consumer, so the measured latencies contain the consumer's delay.
    """

    def __init__(self, consumer: Consumer, cluster: str, clock: Callable[[], int] = steady_ms):
        """Create the wrapper. ``cluster`` is the alias, and ``clock`` returns ms."""
        self._consumer, self._cluster, self._clock = consumer, cluster, clock
        self._waited_at_ms = clock()

    def take(self, wait_s: float) -> list[PolledRecords]:
        """Return available records, or wait up to ``wait_s`` for the next message.

        An entry without records reports the end of its partition.

        Raises:
            HeadraceError: The client reported a permanent error.
        """
        found = self._consumer.consume(_MAX_MESSAGES_PER_CALL, 0)
        if not found:
            message = self._consumer.poll(wait_s)
            self._waited_at_ms = self._clock()
            found = [] if message is None else [message]
        return list(self._by_partition(found))

    @property
    def is_behind(self) -> bool:
        """True if the last records may have waited for this consumer."""
        return self._clock() - self._waited_at_ms >= BEHIND_MS

    def _by_partition(self, found: list[Message]) -> Iterator[PolledRecords]:
        for (topic, partition), group in groupby(found, key=lambda m: (m.topic(), m.partition())):
            at = TopicPartition(topic or "", partition or 0)
            messages = list(group)
            records = [m for m in messages if m.error() is None or self._is_record(m, at)]
            behind = [(records[-1].offset() or 0) + 1] if records else []
            yield PolledRecords(at, records, max([*behind, messages[-1].offset() or 0]))

    def _is_record(self, message: Message, at: TopicPartition) -> bool:
        return journal.is_record(message, f"read {at} of {self._cluster}")


MAX_LATENCY_MS = 3_600_000
"""Maximum latency in ms that is counted, 1 h. Longer latencies count as 1 h, which limits the
number of buckets."""


class LatencyHistogram:
    """Latencies of the messages that one consumer received.

    Memory use grows with the duration and the spread of latencies, but not with the number of
    messages.
    """

    def __init__(self) -> None:
        self.histogram: Counter[int] = Counter()
        self.seconds: dict[int, Counter[int]] = defaultdict(Counter)
        self.before_sent = 0
        self.behind = 0

    def add(self, sent: Mapping[int, int], seen_ms: int, *, behind: bool = False) -> None:
        """Add messages that were received at one time.

        ``sent`` is the number of messages by the time, in ms, at which they were sent. ``behind``
        is True if they may have waited for the consumer.
        """
        for sent_ms, count in sent.items():
            latency_ms = min(seen_ms - sent_ms, MAX_LATENCY_MS)
            if latency_ms < 0:
                self.before_sent += count
                latency_ms = 0
            if behind:
                self.behind += count
            self.histogram[latency_ms] += count
            self.seconds[seen_ms // 1000][two_digits(latency_ms)] += count


def merged(parts: Iterable[Mapping[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merge histograms. The result is sorted by latency."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)
    return tuple(sorted(total.items()))


def second(at: int, parts: Iterable[Mapping[int, int]]) -> Second:
    """Return the latencies of all consumers in one second."""
    histogram = merged(parts)
    return Second(
        second=at,
        visible=sum(count for _, count in histogram),
        p50_ms=quantile(histogram, 0.5),
        p99_ms=quantile(histogram, 0.99),
        max_ms=histogram[-1][0],
    )


def seconds(consumers: Sequence[LatencyHistogram]) -> tuple[Second, ...]:
    """Return the latencies of each second in which a consumer received messages, in order."""
    return tuple(
        second(at, [arrivals.seconds.get(at, {}) for arrivals in consumers])
        for at in sorted({at for arrivals in consumers for at in arrivals.seconds})
    )


# The latency of the mirror alone, from a consumer of the source to a consumer of the target.
#
# Both consumers run in one process with one clock, so the clocks of producers and brokers have no
# influence. Delays that both consumers have in common cancel out.

log = logs.get_logger(__name__)

MAX_UNMATCHED = 200_000
"""Maximum number of messages that were received on one side only. They take 50 MB of memory.

If there are more, the oldest messages are discarded and not measured. Duplicates on the target are
also discarded, because the source has no second message for them.
"""

Name = tuple[str, bytes, bytes]
"""Source topic, producer and sequence number of a message."""
Clock = Callable[[], int]
"""Function that returns the time in ms."""


class Crossings:
    """Latencies from the arrival at a source consumer to the arrival at a target consumer.

    Messages that were received on one side only are kept until they arrive on the other side.
    """

    def __init__(self, max_unmatched: int = MAX_UNMATCHED) -> None:
        self.measured = LatencyHistogram()
        self._most = max_unmatched
        self._lock = Lock()
        self._source: OrderedDict[Name, int] = OrderedDict()
        self._target: OrderedDict[Name, int] = OrderedDict()

    def on_source(self, names: Iterable[Name], at_ms: int) -> None:
        """Add messages that a consumer of the source received."""
        with self._lock:
            sooner = self._match(names, self._target, self._source, at_ms)
            for seen_ms, count in Counter(sooner).items():
                # The consumer of the target received it first: the latency is 0.
                self.measured.add({seen_ms: count}, seen_ms)

    def on_target(self, names: Iterable[Name], at_ms: int) -> None:
        """Add messages that a consumer of the target received."""
        with self._lock:
            self.measured.add(Counter(self._match(names, self._source, self._target, at_ms)), at_ms)

    def _match(
        self,
        names: Iterable[Name],
        others: OrderedDict[Name, int],
        own: OrderedDict[Name, int],
        at_ms: int,
    ) -> list[int]:
        """Return the times in ``others`` at which these messages were received.

        Messages that are not in ``others`` are added to ``own``.
        """
        found = []
        for name in names:
            seen_ms = others.pop(name, None)
            if seen_ms is None:
                own[name] = at_ms
            else:
                found.append(seen_ms)
        while len(own) > self._most:
            own.popitem(last=False)
        return found


class SourceWatch:
    """Thread that consumes partitions of the source.

    An error ends the thread and is only logged. The latency of the mirror alone is then not
    measured.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        run: str,
        starts: Mapping[TopicPartition, int],
        crossings: Crossings,
        clock: Clock = steady_ms,
    ) -> None:
        self._cluster, self._run = cluster, run.encode()
        self._starts, self._crossings, self._clock = dict(starts), crossings, clock
        self._not_ready = set(starts)
        self.behind = 0
        """Number of messages that may have waited for this consumer."""
        self._over = Event()
        self._thread = Thread(target=self._watch, name="watching the source", daemon=True)
        if starts:
            self._thread.start()

    @property
    def is_ready(self) -> bool:
        """True if the consumer has reached every partition, or has ended."""
        return not self._not_ready or not self._thread.is_alive()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._over.set()
        if self._starts:
            self._thread.join()

    def _watch(self) -> None:
        try:
            consumer = make_consumer(self._cluster)
            try:
                assign(consumer, self._starts.items())
                following = Following(consumer, self._cluster.alias)
                while not self._over.is_set():
                    taken = following.take(0.1)
                    at_ms, behind = self._clock(), following.is_behind
                    for part in taken:
                        self._not_ready.discard(part.at)
                        found, _ = messages.recognise_all(part.records, self._run)
                        if behind:
                            self.behind += len(found)
                        self._crossings.on_source(names(part.at.topic, found), at_ms)
            finally:
                consumer.close()
        except HeadraceError as error:
            log.warning("the mirror's own share is not measured any more", why=str(error))


def names(topic: str, found: Iterable[messages.Sighting]) -> Iterator[Name]:
    """Yield the names of messages in a source topic."""
    return ((topic, *sighting.name) for sighting in found)


POLL_S = 0.5
START_S = 900.0
"""Maximum time in seconds until the load begins.

On Kubernetes the load waits for the chaos Job, its image and its executors, for up to 300 s each.
"""
QUIET_PERIOD_S = 10.0
"""Maximum time in seconds without records from a target that has more records."""

Sentinel = tuple[str, int]
"""Target topic and source partition of an end sentinel."""


class LoadDeadline:
    """Time until which consumers wait for sentinels, derived from the records of the journal."""

    def __init__(self, settle_s: float, now_s: float) -> None:
        self._settle_s, self._end_s = settle_s, now_s + settle_s + START_S
        self.has_ended = False
        """True if the load has ended with a manifest."""

    def receive(self, key: str, now_s: float) -> None:
        """Process the key of a journal record of the run."""
        if key == documents.MANIFEST_KEY:
            self.has_ended = True
            self._end_s = now_s + self._settle_s
        elif key == documents.LOAD_FAILED_KEY:
            self._end_s = now_s
        elif documents.is_progress(key):
            # The load continues. If no report follows until the new end, its producers have ended.
            self._end_s = now_s + self._settle_s + START_S

    def is_over(self, now_s: float) -> bool:
        """Return True if the consumers must stop waiting for sentinels."""
        return now_s >= self._end_s


class Watched(NamedTuple):
    """Measurements of one consumer."""

    arrivals: LatencyHistogram
    own: LatencyHistogram
    """Latencies caused by the mirror alone."""
    late: set[Sentinel]
    """Sentinels that did not arrive in time, or empty if this consumer did not read far enough."""
    behind: int
    """Number of messages that may have waited for the consumer, the higher of both clusters."""


def run_watch(
    run: MirrorTestRun,
    sentinels: set[Sentinel],
    keys: Mapping[str, int],
    shares: Iterable[WatchAssignment],
) -> Iterator[Watched]:
    """Run the consumer of one Spark task, and yield its measurements."""
    logs.configure()
    number = BarrierTaskContext.get().partitionId()
    for share in shares:
        yield Watch(run, number, sentinels, share, keys).watch()


class Watch:
    """Consumer that measures the arrival of messages on the target."""

    def __init__(
        self,
        run: MirrorTestRun,
        number: int,
        sentinels: set[Sentinel],
        share: WatchAssignment,
        keys: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Create the consumer.

        ``keys`` is the number of keys of each target topic. It is empty if no metrics are served.
        """
        self._run = run
        self._run_name = run.name.encode()
        self._name = f"probe-{number}"
        self._tail = journal.JournalTail(run.source, run.name)
        self._consumer = make_consumer(run.target)
        assign(self._consumer, share.target.items())
        self._following = Following(self._consumer, run.target.alias)
        self._next = dict(share.target)
        self._not_ready = set(share.target)
        self._is_announced = False
        self._origins = {to: at for at, to in run.first_topics.items()} if share.source else {}
        self._crossings = Crossings()
        self._source = SourceWatch(run.source, run.name, share.source, self._crossings)
        self._open = set(sentinels)
        """Sentinels that no consumer has received."""
        self._seen: list[Sentinel] = []
        """Sentinels that this consumer received and has not reported to the others."""
        self._load = LoadDeadline(run.test.spec.settle_seconds, time.monotonic())
        self._arrivals = LatencyHistogram()
        self._counts = SequenceCounts(keys) if keys else None
        """Counts for metrics, or None if no metrics are served."""
        self._reporter = make_producer(run.source) if keys else None

    def watch(self) -> Watched:
        """Measure until the consumers together have received every sentinel, or time is over.

        The time ends ``settleSeconds`` after the end of the load is reported. Until this report, it
        ends ``settleSeconds`` plus ``START_S`` after the last report of progress, or after the
        start. If the load fails, the time ends at once.
        """
        try:
            late = self._watch()
            behind = max(self._arrivals.behind, self._source.behind)
            return Watched(self._arrivals, self._crossings.measured, late, behind)
        finally:
            self._source.close()

    def _watch(self) -> set[Sentinel]:
        exchange_at = 0.0
        while self._open and not self._load.is_over(now := time.monotonic()):
            self._take()
            if now >= exchange_at:
                exchange_at = now + POLL_S
                self._exchange()
        knows = self._load.has_ended
        if self._run.test.spec.partitioning is not Partitioning.PRESERVED:
            # Messages of other partitions may follow the sentinels.
            knows &= self._reads_what_is_there()
        elif self._open:
            knows = knows and self._reads_what_is_there()
        self._exchange()
        self._consumer.close()
        self._tail.close()
        return self._open if knows else set()

    def _reads_what_is_there(self) -> bool:
        """Read all existing records. Return True if this consumer reached the end.

        Unread messages could be reported as late only because this consumer is behind.
        """
        try:
            ends = Admin(self._run.target).offsets(self._next, Position.LAST_STABLE)
        except HeadraceError:
            return False
        quiet_at = time.monotonic() + QUIET_PERIOD_S
        while any(self._next[at] < end for at, end in ends.items()):
            if self._take():
                quiet_at = time.monotonic() + QUIET_PERIOD_S
            elif time.monotonic() > quiet_at:
                return False
        return True

    def _take(self) -> bool:
        """Process available records. Return True if there were any."""
        taken = self._following.take(0.1)
        seen_ms, steadily_ms, behind = now_ms(), steady_ms(), self._following.is_behind
        for part in taken:
            self._see(part, seen_ms, steadily_ms, behind=behind)
        return bool(taken)

    def _see(self, part: PolledRecords, seen_ms: int, steadily_ms: int, *, behind: bool) -> None:
        """Process records that were received at a time, given by both clocks.

        ``behind`` is True if the records may have waited for the consumer.
        """
        at = part.at
        self._not_ready.discard(at)  # the consumer reads this partition
        if at in self._next:  # errors have no partition
            self._next[at] = max(self._next[at], part.next_offset)
        found, sentinels = messages.recognise_all(part.records, self._run_name)
        sent = Counter(sighting.timestamp_ms for sighting in found)
        self._arrivals.add(sent, seen_ms, behind=behind)
        if self._counts is not None:
            self._counts.add(at.topic, found, seen_ms)
        if (topic := self._origins.get(at.topic)) is not None:
            self._crossings.on_target(names(topic, found), steadily_ms)
        for sighting in sentinels:
            # Any position counts as arrived, because the comparison reports wrong positions.
            name = self._run.topics.get(sighting.topic or "", at.topic)
            assert sighting.sentinel is not None
            self._seen.append((name, sighting.sentinel))

    def _exchange(self) -> None:
        """Exchange received sentinels with the other consumers, and read the progress of the load.

        Report once that the consumers of this task are ready.
        """
        if not (self._is_announced or self._not_ready) and self._source.is_ready:
            self._is_announced = True
            self._write(documents.ready_key(self._name), {})
        if self._seen:
            self._write(documents.sentinels_key(self._name), self._seen)
            self._open.difference_update(self._seen)
            self._seen = []
        self._report_counts()
        for key, value in self._tail.poll(0):
            self._load.receive(key, time.monotonic())
            if documents.is_sentinels(key):
                self._open.difference_update((topic, partition) for topic, partition in value)

    def _report_counts(self) -> None:
        """Write the counts into the journal without waiting for the broker.

        A consumer that waits would fall behind and measure its own delay.
        """
        if self._counts is None or self._reporter is None:
            return
        with suppress(BufferError):  # the queue is full; the next report follows soon
            self._reporter.produce(
                journal.TOPIC,
                json.dumps(self._counts.report()).encode(),
                journal.record_key(self._run.name, documents.seen_key(self._name)),
                partition=0,
            )
        self._reporter.poll(0)

    def _write(self, key: str, value: Any) -> None:
        journal.write(self._run.source, self._run.name, key, json.dumps(value))
