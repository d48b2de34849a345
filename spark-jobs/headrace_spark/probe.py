"""Watches the load arrive on the target: plain consumers, one a Spark task.

They begin before the first message is sent, at the end of every partition, and end when all
sentinels are seen, or the time that the mirror has is over.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Event, Thread
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from headrace.api.partitions import TopicPartition
from headrace.kafka import Admin, Message, assign, journal, make_consumer
from headrace.report import Measured, Run
from headrace_spark import messages, topics
from headrace_spark.latency import Arrivals, merged, second

LOOK_S = 0.5
START_S = 120.0
"""How long the load's job may take from the probe's readiness to its first word (Spark starts)."""

Position = tuple[str, int, int]
"""Topic, partition, offset."""

OnReady = Callable[[tuple[str, ...]], None]


def probe(spark: SparkSession, run: Run, wait_s: float, on_ready: OnReady) -> Measured:
    """Measure until the end of the run.

    Waits for the target's topics as long as ``wait_s`` and settleSeconds allow; those that are not
    there then are not measured. ``on_ready`` is called with their names when every consumer is in place, at the end of
    its partitions.
    """
    topics.prepare(run)
    there = _wait_for_topics(run, max(wait_s, run.test.spec.settle_seconds))
    missing = tuple(name for name in run.topics.values() if name not in there)
    if not there:
        on_ready(missing)
        return Measured(unmeasured_topics=missing)
    positions = [
        (topic, partition, offset)
        for topic, offsets in topics.ends(run.target, there).items()
        for partition, offset in enumerate(offsets)
    ]
    # As many as there are producers: what they can send, these can read.
    count = min(run.test.spec.load.producers, len(positions))
    tail = journal.Tail(run.source, run.name)
    done = Event()
    follower = Thread(target=_follow, args=(tail, count, lambda: on_ready(missing), done))
    follower.start()
    try:
        seen = (
            spark.sparkContext.parallelize([positions[n::count] for n in range(count)], count)
            .barrier()
            .mapPartitions(partial(_run_consumer, run))
            .collect()  # counts a consumer, whatever the number of records
        )
    finally:
        done.set()
        follower.join()
    return Measured(
        histogram=merged(arrivals.histogram for arrivals in seen),
        seconds=tuple(
            second(at, [arrivals.seconds.get(at, {}) for arrivals in seen])
            for at in sorted({at for arrivals in seen for at in arrivals.seconds})
        ),
        before_sent=sum(arrivals.before_sent for arrivals in seen),
        unmeasured_topics=missing,
    )


def _wait_for_topics(run: Run, wait_s: float) -> dict[str, int]:
    """The target's topics that are there, with their partitions, as soon as all of them are."""
    deadline = time.monotonic() + wait_s
    while len(there := topics.on_target(run)) < len(run.topics) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return there


def _follow(tail: journal.Tail, count: int, on_ready: Callable[[], None], done: Event) -> None:
    """Wait for the consumers' word that they are in place."""
    ready: set[str] = set()
    while len(ready) < count and not done.is_set():
        for fact, _ in tail.poll(LOOK_S):
            if fact.endswith(f"/{journal.READY}"):
                ready.add(fact)
    tail.close()
    if len(ready) == count:
        on_ready()


def _run_consumer(run: Run, shares: Iterable[list[Position]]) -> Iterator[Arrivals]:
    """A Spark task."""
    number = BarrierTaskContext.get().partitionId()
    for share in shares:
        yield _Watch(run, number, share).watch()


class _Watch:
    """One consumer's life."""

    def __init__(self, run: Run, number: int, share: list[Position]) -> None:
        self._run = run
        self._run_name = run.name.encode()
        self._name = f"probe-{number}"
        self._tail = journal.Tail(run.source, run.name)
        self._consumer = make_consumer(run.target)
        assign(self._consumer, [(TopicPartition(t, p), offset) for t, p, offset in share])
        self._not_ready = {(t, p) for t, p, _ in share}
        counts = Admin(run.source).topics()
        self._open = {(t, p) for name, t in run.topics.items() for p in range(counts[name])}
        """Sentinels that no consumer has seen."""
        self._seen: list[tuple[str, int]] = []
        """Those that this one saw and has not told the others."""
        self._settle_s = run.test.spec.settle_seconds
        self._give_up_at = time.monotonic() + self._settle_s + START_S
        self._arrivals = Arrivals()

    def watch(self) -> Arrivals:
        """Until every sentinel is seen, by whichever consumer, or the mirror's time is over."""
        look_at = 0.0
        while self._open and (now := time.monotonic()) < self._give_up_at:
            message = self._consumer.poll(0.1)
            if message is not None:
                self._see(message)
            if now >= look_at:
                look_at = now + LOOK_S
                self._talk()
        self._talk()
        self._consumer.close()
        self._tail.close()
        return self._arrivals

    def _see(self, message: Message) -> None:
        at = (message.topic(), message.partition())
        if self._not_ready:  # a record or the end: either way the consumer is in place there
            self._not_ready.discard(at)
            if not self._not_ready:
                self._tell(journal.READY, {})
        if not journal.is_record(message, f"read {at[0]}-{at[1]} of {self._run.target.alias}"):
            return
        sighting = messages.recognise(message, self._run_name)
        if sighting is None:
            return
        if sighting.sentinel is None:
            self._arrivals.add(sighting.timestamp_ms, time.time_ns() // 1_000_000)
        else:
            self._seen.append((at[0] or "", sighting.sentinel))

    def _talk(self) -> None:
        """Tell the other consumers what was seen, and hear from them and from the load."""
        if self._seen:
            self._tell(journal.SENTINELS, self._seen)
            self._open.difference_update(self._seen)
            self._seen = []
        for fact, value in self._tail.poll(0):
            if fact == journal.MANIFEST:
                self._give_up_at = time.monotonic() + self._settle_s
            elif fact.endswith(f"/{journal.SENTINELS}"):
                self._open.difference_update((topic, partition) for topic, partition in value)
            elif fact.endswith(f"/{journal.PROGRESS}"):
                # While the load goes on; without a word for so long, its producers are dead.
                self._give_up_at = time.monotonic() + self._settle_s + START_S

    def _tell(self, what: str, value: Any) -> None:
        fact = journal.key(self._run.name, self._name, what)
        journal.write(self._run.source, fact, json.dumps(value))
