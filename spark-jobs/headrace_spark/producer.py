"""The load: one Spark task is one producer.

The stage runs once. It is a barrier stage: all its tasks at the same time, or none. A producer that
had to wait for another's slot would halve the rate and send into a finished test.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from headrace.api.partitions import TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import (
    Admin,
    KafkaError,
    KafkaException,
    Message,
    Position,
    make_producer,
    translate,
)
from headrace.report import Plan, PlannedTopic
from headrace_spark import journal, messages
from headrace_spark.manifest import Manifest, PartitionSummary, Stream
from headrace_spark.pace import Pace

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


def produce(spark: SparkSession, plan: Plan, on_progress: OnProgress) -> Manifest:
    """Send the whole load, then a sentinel to every partition; what was acknowledged.

    ``on_progress`` gets the number of acknowledged messages, about twice a second, from a thread.
    Raises ``GaveUp`` when sentinels are not acknowledged.
    """
    count = plan.test.spec.load.producers
    document = plan.model_dump_json(by_alias=True)
    done = Event()
    journal.create(plan.source)
    tail = journal.Tail(plan.source, plan.run)
    follower = Thread(target=_follow, args=(tail, on_progress, done))
    follower.start()
    try:
        rows = (
            spark.sparkContext.parallelize(range(count), count)
            .barrier()
            .mapPartitions(partial(_run_producer, document))
            .collect()  # a few lines a producer, whatever the number of records
        )
    finally:
        done.set()
        follower.join()
    reports = [json.loads(row) for row in rows]
    streams = tuple(Stream.model_validate(s) for report in reports for s in report["streams"])
    seconds: Counter[int] = Counter()
    for report in reports:
        seconds.update(dict(report["seconds"]))
    _send_sentinels(plan)
    partitions = [TopicPartition(t.source, p) for t in plan.topics for p in range(t.partitions)]
    ends = Admin(plan.source).offsets(partitions, Position.LAST_STABLE)
    return Manifest(
        run=plan.run,
        streams=streams,
        started_ms=min(report["startedMs"] for report in reports),
        finished_ms=max(report["finishedMs"] for report in reports),
        acknowledged_per_second=tuple(sorted(seconds.items())),
        end_offsets={
            t.source: tuple(ends[TopicPartition(t.source, p)] for p in range(t.partitions))
            for t in plan.topics
        },
        errors=tuple(error for report in reports for error in report["errors"]),
    )


def _follow(tail: journal.Tail, on_progress: OnProgress, done: Event) -> None:
    """Add up what the producers write into the journal."""
    acknowledged: dict[str, int] = {}
    while not done.is_set():
        for fact, value in tail.poll(PROGRESS_S):
            if fact.endswith(f"/{journal.PROGRESS}"):
                acknowledged[fact] = value["acknowledged"]
                on_progress(sum(acknowledged.values()))
    tail.close()


def _run_producer(document: str, indices: Iterable[int]) -> Iterator[str]:
    """A Spark task; its one row is JSON: the streams, and what their sums cannot tell."""
    context = BarrierTaskContext.get()
    plan = Plan.model_validate_json(document)
    for index in indices:
        context.barrier()  # all producers begin together
        load = _Load(plan, index, context.attemptNumber())
        load.send()
        yield json.dumps(load.report())


class _Acknowledged:
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

    def __init__(self, plan: Plan, index: int, attempt: int) -> None:
        load = plan.test.spec.load
        self._plan = plan
        self._id = messages.producer_id(plan.run, index, attempt)
        self._writer = messages.Writer(self._id, load.message_size_bytes)
        self._producer = make_producer(plan.source, _PRODUCER)
        rate = load.messages_per_second
        self._pace = Pace(None if rate is None else rate / load.producers)
        self._duration_s = load.duration_seconds
        self._limits = [
            None
            if load.messages is None
            else messages.share(
                load.messages, load.producers * len(plan.topics), index * len(plan.topics) + topic
            )
            for topic in range(len(plan.topics))
        ]
        self._sent = [0] * len(plan.topics)
        self._failed: list[set[int]] = [set() for _ in plan.topics]
        self._acknowledged = [[_Acknowledged() for _ in range(t.partitions)] for t in plan.topics]
        self._errors: list[str] = []
        self._seconds: Counter[int] = Counter()
        self._counted = 0
        self._progress_at = 0.0
        self._started_ms = self._finished_ms = 0

    def send(self) -> None:
        """Send everything and wait for every acknowledgement; stops at the first refusal.

        A refusal is final: what can heal, the client tries again by itself.
        """
        self._started_ms = self._finished_ms = _now_ms()
        end_s = None if self._duration_s is None else time.monotonic() + self._duration_s
        while not self._errors and (end_s is None or time.monotonic() < end_s):
            granted = self._pace.grant()
            before = sum(self._sent)
            for number, topic in enumerate(self._plan.topics):
                self._send_some(number, topic, granted)
            self._observe(0)
            if sum(self._sent) == before:
                break
        self._wait_for_the_rest()

    def _send_some(self, number: int, topic: PlannedTopic, granted: int) -> None:
        first = self._sent[number]
        limit = self._limits[number]
        beyond = first + granted if limit is None else min(first + granted, limit)
        for seq in range(first, beyond):
            key = messages.key_of(seq, topic.keys)
            partition = messages.partition_of(seq, topic.keys, topic.partitions)
            timestamp_ms = _now_ms()
            message = self._writer.message(seq, timestamp_ms)
            acknowledged = partial(
                self._delivered, self._failed[number], self._acknowledged[number][partition]
            )
            while True:
                try:
                    self._producer.produce(
                        topic.source,
                        message.value,
                        b"%d" % key,
                        partition=partition,
                        timestamp=timestamp_ms,
                        headers=message.headers,
                        on_delivery=partial(acknowledged, seq, message.checksum),
                    )
                except BufferError:
                    self._observe(0.05)
                    continue
                except KafkaException as error:
                    self._errors.append(str(translate(error, f"send to {topic.source}")))
                    return
                break
            self._sent[number] = seq + 1

    def _delivered(
        self,
        failed: set[int],
        acknowledged: _Acknowledged,
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
        """Take acknowledgements in, and tell the world now and then."""
        self._producer.poll(wait_s)
        total = sum(a.count for partitions in self._acknowledged for a in partitions)
        now = time.time()
        if total > self._counted:
            self._seconds[int(now)] += total - self._counted
            self._counted = total
            self._finished_ms = int(now * 1000)
        if now >= self._progress_at:
            with suppress(BufferError):  # full: next time
                self._producer.produce(
                    journal.TOPIC,
                    json.dumps({"acknowledged": total}).encode(),
                    journal.key(self._plan.run, self._id, journal.PROGRESS).encode(),
                    partition=0,
                )
                self._progress_at = now + PROGRESS_S

    def _wait_for_the_rest(self) -> None:
        """Until nothing is in flight; what is stuck fails, and is known to have failed."""
        counted, deadline = self._counted, time.monotonic() + STUCK_S
        while len(self._producer) and time.monotonic() < deadline:
            self._observe(0.05)
            if self._counted > counted:
                counted, deadline = self._counted, time.monotonic() + STUCK_S
        if len(self._producer):
            self._producer.purge()
            self._producer.flush(5)
        self._progress_at = 0  # the last word
        self._observe(0)
        self._producer.flush(5)

    def report(self) -> dict[str, Any]:
        """What ``produce`` puts together into the manifest."""
        streams = [
            Stream(
                producer=self._id,
                topic=topic.source,
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
                    for partition, a in enumerate(self._acknowledged[number])
                    if a.count
                ),
            )
            for number, topic in enumerate(self._plan.topics)
        ]
        return {
            "streams": [stream.model_dump(mode="json") for stream in streams],
            "seconds": sorted(self._seconds.items()),
            "startedMs": self._started_ms,
            "finishedMs": self._finished_ms,
            "errors": self._errors,
        }


def _send_sentinels(plan: Plan) -> None:
    """The last record of every partition, after everything else is acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = make_producer(plan.source)
    for topic in plan.topics:
        for partition in range(topic.partitions):
            now_ms = _now_ms()
            message = messages.sentinel(plan.run, partition, now_ms)
            producer.produce(
                topic.source,
                message.value,
                b"%d" % partition,
                partition=partition,
                timestamp=now_ms,
                headers=message.headers,
                on_delivery=delivered,
            )
    if producer.flush(STUCK_S):
        raise GaveUp(f"could not write the end sentinels to {plan.source.alias} in {STUCK_S:.0f} s")
    if failures:
        raise translate(failures[0], f"write the end sentinels to {plan.source.alias}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
