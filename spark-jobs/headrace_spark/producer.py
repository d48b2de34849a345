"""The load: one Spark task is one producer.

The stage runs once. It is a barrier stage: all its tasks at the same time, or none. A producer that
had to wait for another's slot would halve the rate and send into a finished test.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Thread
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from headrace.api import MessageFormat, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import KafkaError, KafkaException, Message, journal, make_producer, translate
from headrace.mirror_test import (
    Acknowledged,
    LoadedTopic,
    LoadManifest,
    PartitionSummary,
    Run,
    Stream,
    journal_keys,
)
from headrace_spark import messages, topics
from headrace_spark.live_metrics import LoadFigures, served
from headrace_spark.pace import Pace
from headrace_spark.topics import LoadTopic

PROGRESS_S = 0.5
STUCK_S = 120.0
"""Without any acknowledgement for so long, what is in flight has failed: ten leader elections."""

_PRODUCER = {
    # What is in flight is bounded: by number for small messages, by size for large ones.
    "queue.buffering.max.messages": 20_000,
    "queue.buffering.max.kbytes": 65_536,
    "message.max.bytes": 64 << 20,  # the topic's own limit decides, by a sentence of the broker
    "linger.ms": 10,
}

OnProgress = Callable[[int], None]
OnReport = Callable[[str, Any], None]
"""Gets a record of the journal."""


def produce(
    spark: SparkSession,
    run: Run,
    on_progress: OnProgress,
    is_to_end: Callable[[], bool],
    metrics_port: int | None = None,
) -> LoadManifest:
    """Send the whole load, then a sentinel to every partition; what was acknowledged.

    ``on_progress`` gets the number of acknowledged messages, about twice a second, from a thread;
    as often ``is_to_end`` is asked whether to send no more. With ``metrics_port``, metrics are
    served there meanwhile. Raises ``GaveUp`` when sentinels are not acknowledged.
    """
    topics.prepare(run)
    load_topics = topics.describe(run)
    starts = topics.ends(run.source, {t.name: t.partitions for t in load_topics})
    target_starts = topics.ends(run.target, topics.on_target(run))
    figures = LoadFigures(run.test.spec.load, [t.partitions for t in load_topics])
    acknowledged = Acknowledged()

    def on_report(key: str, value: Any) -> None:
        figures.receive(key, value)
        if acknowledged.receive(key, value):
            on_progress(acknowledged.total)

    with served(metrics_port, figures.text):
        reports = _run_stage(spark, run, load_topics, on_report, is_to_end)
    changes: dict[str, int] = journal.read(run.source, run.name, journal_keys.TOPICS) or {}
    all_topics = topics.changed(run, load_topics, changes)
    partitions = {t.name: t.partitions for t in all_topics}
    _send_sentinels(run, partitions)
    ends = topics.ends(run.source, partitions)
    seconds: Counter[int] = Counter()
    for report in reports:
        seconds.update(report.seconds)
    return LoadManifest(
        run=run.name,
        topics=tuple(
            LoadedTopic(
                name=t.name,
                keys=t.keys,
                start_offsets=_padded(starts.get(t.name, ()), t.partitions),
                end_offsets=ends[t.name],
                target_start_offsets=target_starts.get(t.target, ()),
            )
            for t in all_topics
        ),
        streams=tuple(stream for report in reports for stream in report.streams),
        started_ms=min(report.started_ms for report in reports),
        finished_ms=max(report.finished_ms for report in reports),
        acknowledged_per_second=tuple(sorted(seconds.items())),
        errors=tuple(error for report in reports for error in report.errors),
        warnings=(*_unlike(run, load_topics), *_nameless(run), *_ended(run, reports)),
    )


def _run_stage(
    spark: SparkSession,
    run: Run,
    load_topics: tuple[LoadTopic, ...],
    on_report: OnReport,
    is_to_end: Callable[[], bool],
) -> "list[_Report]":
    count = run.test.spec.load.producers
    tail = journal.Tail(run.source, run.name)
    done = Event()
    follower = Thread(target=_follow, args=(run, tail, on_report, is_to_end, done))
    follower.start()
    try:
        return (
            spark.sparkContext.parallelize(range(count), count)
            .barrier()
            .mapPartitions(partial(_run_producer, run, load_topics))
            .collect()  # a report a producer, whatever the number of records
        )
    finally:
        done.set()
        follower.join()


def _padded(offsets: tuple[int, ...], partitions: int) -> tuple[int, ...]:
    """With 0 for the partitions that were not there yet."""
    return offsets + (0,) * (partitions - len(offsets))


def _unlike(run: Run, load_topics: tuple[LoadTopic, ...]) -> tuple[str, ...]:
    """Topics that were there already, with another number of partitions than asked for."""
    wanted = run.test.spec.load.partitions
    return tuple(
        f"topic {t.name} was there with {t.partitions} partitions, not {wanted}"
        for t in load_topics
        if t.partitions != wanted
    )


def _nameless(run: Run) -> tuple[str, ...]:
    """That messages are too small to name their topic."""
    load = run.test.spec.load
    topics = [t for t in run.topics if not messages.has_room(t, load.message_size_bytes)]
    if load.message_format is not MessageFormat.BODY or len(run.topics) < 2 or not topics:
        return ()
    return (
        f"messages of {load.message_size_bytes} bytes have no room for the name of their topic "
        f"({', '.join(topics[:3])}): if the mirror exchanged those of two topics, equal ones "
        "would not be seen",
    )


def _ended(run: Run, reports: "list[_Report]") -> tuple[str, ...]:
    """That somebody ended the load, where it would have sent more."""
    if run.test.spec.load.is_endless or not any(report.was_ended for report in reports):
        return ()
    sent = sum(stream.sent for report in reports for stream in report.streams)
    planned = run.test.spec.load.messages
    of = f"{planned:,} messages" if planned else f"{run.test.spec.load.duration_seconds} s of load"
    return (f"the load was ended early, as somebody asked: {sent:,} messages were sent, of {of}",)


def _follow(
    run: Run,
    tail: journal.Tail,
    on_report: OnReport,
    is_to_end: Callable[[], bool],
    done: Event,
) -> None:
    """Add up what the producers report in the journal; signal them there to end the load."""
    ending = False
    while not done.is_set():
        if not ending and is_to_end():
            journal.write(run.source, run.name, journal_keys.END, "{}")
            ending = True
        for key, value in tail.poll(PROGRESS_S):
            on_report(key, value)
    tail.close()


def _run_producer(
    run: Run, load_topics: tuple[LoadTopic, ...], indices: Iterable[int]
) -> "Iterator[_Report]":
    """A Spark task."""
    context = BarrierTaskContext.get()
    for index in indices:
        context.barrier()  # all producers begin together
        yield _Load(run, load_topics, index, context.attemptNumber()).send()


@dataclass(frozen=True)
class _Report:
    """What a producer did; bounded, whatever the number of records."""

    streams: tuple[Stream, ...]
    seconds: Counter[int]
    started_ms: int
    finished_ms: int
    errors: tuple[str, ...]
    was_ended: bool
    """Whether it had more to send when somebody ended the load."""


class _PartitionTotals:
    """What one producer got acknowledged in one partition of a topic."""

    __slots__ = ("checksum", "count", "first", "last")

    def __init__(self) -> None:
        self.first = self.last = -1
        self.count = self.checksum = 0

    def add(self, seq: int, checksum: int) -> None:
        # Acknowledgements of one partition come in the order of sending.
        if not self.count:
            self.first = seq
        self.last = seq
        self.count += 1
        self.checksum += checksum


class _Load:
    """One producer's part of the load."""

    def __init__(
        self, run: Run, load_topics: tuple[LoadTopic, ...], index: int, attempt: int
    ) -> None:
        load = run.test.spec.load
        self._run = run
        self._topics = list(load_topics)
        self._id = messages.producer_id(run.name, index, attempt)
        self._progress_key = journal.record_key(run.name, journal_keys.progress(self._id))
        self._writer = messages.Writer(self._id, load.message_size_bytes, load.message_format)
        self._producer = make_producer(run.source, _PRODUCER)
        self._tail = journal.Tail(run.source, run.name)
        self._is_to_end = self._was_ended = False
        self._changes: dict[str, int] = {}
        """Partitions of topics that the load has got, and this producer does not know yet."""
        # What was written before the tail began to read is there.
        for key, value in journal.read_all(run.source, run.name).items():
            self._hear(key, value)
        rate = load.messages_per_second
        self._pace = Pace(None if rate is None else rate / load.producers)
        self._duration_s = None if load.is_endless else load.duration_seconds
        self._limits = [
            None
            if load.messages is None
            else messages.share(
                load.messages, load.producers * len(load_topics), index * len(load_topics) + topic
            )
            for topic in range(len(load_topics))
        ]
        self._sent = [0] * len(load_topics)
        self._failed: list[set[int]] = [set() for _ in load_topics]
        self._totals = [[_PartitionTotals() for _ in range(t.partitions)] for t in load_topics]
        self._errors: list[str] = []
        self._seconds: Counter[int] = Counter()
        self._counted = 0
        self._progress_at = 0.0
        self._moved_s = time.monotonic()
        self._started_ms = self._finished_ms = 0

    def send(self) -> _Report:
        """Send everything and wait for every acknowledgement; stops at the first refusal.

        A refusal is final: what can heal, the client tries again by itself.
        """
        self._started_ms = self._finished_ms = _now_ms()
        end_s = None if self._duration_s is None else time.monotonic() + self._duration_s
        while not self._errors and (end_s is None or time.monotonic() < end_s):
            if self._is_to_end:
                self._was_ended = True
                break
            granted = self._pace.grant()
            before = sum(self._sent)
            for number, topic in enumerate(self._topics):
                self._send_some(number, topic, granted)
            self._observe(0)
            if sum(self._sent) == before:
                break
        self._wait_for_the_rest()
        self._tail.close()
        return self._report()

    def _send_some(self, number: int, topic: LoadTopic, granted: int) -> None:
        first = self._sent[number]
        limit = self._limits[number]
        beyond = first + granted if limit is None else min(first + granted, limit)
        for seq in range(first, beyond):
            if not self._send_one(number, topic, seq):
                return
            self._sent[number] = seq + 1

    def _send_one(self, number: int, topic: LoadTopic, seq: int) -> bool:
        """Hand one message to the client; ``False`` when that cannot be done any more."""
        partition = messages.partition_of(seq, topic.keys, topic.partitions)
        timestamp_ms = _now_ms()
        message = self._writer.message(TopicPartition(topic.name, partition), seq, timestamp_ms)
        on_delivery = partial(
            self._delivered,
            self._failed[number],
            self._totals[number][partition],
            seq,
            message.checksum,
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
            except BufferError:  # as much in flight as may be
                self._observe(0.05)
                if self._stuck():
                    return False
            except KafkaException as error:
                self._errors.append(str(translate(error, f"send to {topic.name}")))
                return False

    def _delivered(  # noqa: PLR0917 - the client adds the last two
        self,
        failed: set[int],
        acknowledged: _PartitionTotals,
        seq: int,
        checksum: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        if error is None:
            acknowledged.add(seq, checksum)
            return
        failed.add(seq)
        if not self._errors:  # those in flight behind it fail for the same reason
            self._errors.append(str(translate(error, f"send to {message.topic()}")))

    def _observe(self, wait_s: float) -> None:
        """Take acknowledgements, and report the progress now and then."""
        self._producer.poll(wait_s)
        total = sum(a.count for partitions in self._totals for a in partitions)
        now = time.time()
        if total > self._counted:
            self._seconds[int(now)] += total - self._counted
            self._counted = total
            self._moved_s = time.monotonic()
            self._finished_ms = int(now * 1000)
        if now >= self._progress_at:
            for key, value in self._tail.poll(0):
                self._hear(key, value)
            self._change_topics()
            with suppress(BufferError):  # full: next time
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
            "sent": sum(self._sent),
            "failed": sum(map(len, self._failed)),
        }

    def _hear(self, key: str, value: Any) -> None:
        """Take what others write into the journal for the producers."""
        self._is_to_end |= key == journal_keys.END
        if key == journal_keys.TOPICS:
            self._changes = dict(value)

    def _change_topics(self) -> None:
        """Send to the topics and partitions that the load has got, as far as brokers show them."""
        for name in list(self._changes):
            with suppress(KafkaException):  # the next time
                shown = self._producer.list_topics(name, timeout=1).topics[name]
                if len(shown.partitions) >= self._changes[name]:
                    self._change_topic(name, self._changes.pop(name))

    def _change_topic(self, name: str, partitions: int) -> None:
        number = next((n for n, t in enumerate(self._topics) if t.name == name), len(self._topics))
        if number == len(self._topics):
            self._topics.append(topics.added(self._run, name, partitions))
            self._limits.append(None)
            self._sent.append(0)
            self._failed.append(set())
            self._totals.append([])
        self._topics[number] = replace(self._topics[number], partitions=partitions)
        totals = self._totals[number]
        totals += [_PartitionTotals() for _ in range(partitions - len(totals))]

    def _wait_for_the_rest(self) -> None:
        """Until nothing is in flight; what is stuck fails, and is known to have failed."""
        self._moved_s = time.monotonic()
        while len(self._producer) and not self._stuck():
            self._observe(0.05)
        self._producer.purge()
        self._producer.flush(5)
        self._progress_at = 0  # the last report
        self._observe(0)
        self._producer.flush(5)

    def _stuck(self) -> bool:
        stuck = time.monotonic() - self._moved_s > STUCK_S
        if stuck and not self._errors:
            self._errors.append(f"the source acknowledged nothing for {STUCK_S:.0f} s")
        return stuck

    def _report(self) -> _Report:
        streams = tuple(
            Stream(
                producer=self._id,
                topic=topic.name,
                sent=self._sent[number],
                failed=tuple(messages.ranges(self._failed[number])),
                partitions=tuple(
                    PartitionSummary(
                        partition=partition,
                        first=a.first,
                        last=a.last,
                        count=a.count,
                        checksum=a.checksum,
                    )
                    for partition, a in enumerate(self._totals[number])
                    if a.count
                ),
            )
            for number, topic in enumerate(self._topics)
        )
        return _Report(
            streams,
            self._seconds,
            self._started_ms,
            self._finished_ms,
            tuple(self._errors),
            self._was_ended,
        )


def _send_sentinels(run: Run, partitions: dict[str, int]) -> None:
    """The last record of every partition, after everything else is acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = make_producer(run.source)
    for topic, count in partitions.items():
        for partition in range(count):
            now_ms = _now_ms()
            at = TopicPartition(topic, partition)
            message = messages.sentinel(run.name, at, now_ms, run.test.spec.load.message_format)
            producer.produce(
                topic,
                message.value,
                b"%d" % partition,
                partition=partition,
                timestamp=now_ms,
                headers=message.headers,
                on_delivery=delivered,
            )
    if producer.flush(STUCK_S):
        raise GaveUp(f"could not write the end sentinels to {run.source.alias} in {STUCK_S:.0f} s")
    if failures:
        raise translate(failures[0], f"write the end sentinels to {run.source.alias}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
