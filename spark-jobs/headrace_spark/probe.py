"""Watches the load arrive on the target: plain consumers, one a Spark task.

They begin before the first message is sent, at the end of every partition, and end when all
sentinels are seen, or the time that the mirror has is over.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Event, Thread
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from headrace.api.partitions import TopicPartition
from headrace.kafka import Admin, Message, Position, assign, make_consumer
from headrace.report import Measured, Plan
from headrace_spark import journal, messages
from headrace_spark.latency import Arrivals, merged, second

LOOK_S = 0.5
START_S = 120.0
"""How long the load's job may take from the probe's readiness to its first word (Spark starts)."""

OnReady = Callable[[tuple[str, ...]], None]


def probe(spark: SparkSession, plan: Plan, wait_s: float, on_ready: OnReady) -> Measured:
    """Measure until the end of the run.

    Waits at most ``wait_s`` for the target's topics; those that are not there then are not measured.
    ``on_ready`` is called with their names when every consumer waits at the end of its partitions.
    """
    there = _wait_for_topics(plan, wait_s)
    missing = tuple(t.target for t in plan.topics if t.target not in there)
    partitions = [TopicPartition(name, p) for name in there for p in range(there[name])]
    if not partitions:
        on_ready(missing)
        return Measured(unmeasured_topics=missing)
    # As many as there are producers: what they can send, these can read.
    count = min(plan.test.spec.load.producers, len(partitions))
    offsets = Admin(plan.target).offsets(partitions, Position.LAST_STABLE)
    shares = [[(*at, offsets[at]) for at in partitions[n::count]] for n in range(count)]
    journal.create(plan.source)
    done = Event()
    tail = journal.Tail(plan.source, plan.run)
    follower = Thread(target=_follow, args=(tail, count, lambda: on_ready(missing), done))
    follower.start()
    try:
        rows = (
            spark.sparkContext.parallelize(shares, count)
            .barrier()
            .mapPartitions(partial(_run_consumer, plan.model_dump_json(by_alias=True)))
            .collect()  # a histogram a consumer, whatever the number of records
        )
    finally:
        done.set()
        follower.join()
    return _put_together([json.loads(row) for row in rows], missing)


def _wait_for_topics(plan: Plan, wait_s: float) -> dict[str, int]:
    """The target's topics that are there, with their partitions, as soon as all of them are."""
    admin = Admin(plan.target)
    deadline = time.monotonic() + wait_s
    while True:
        known = admin.topics()
        there = {t.target: known[t.target] for t in plan.topics if t.target in known}
        if len(there) == len(plan.topics) or time.monotonic() > deadline:
            return there
        time.sleep(LOOK_S)


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


def _run_consumer(document: str, shares: Iterable[list[Any]]) -> Iterator[str]:
    """A Spark task; its one row is JSON: counts by latency, in all and by second."""
    plan = Plan.model_validate_json(document)
    number = BarrierTaskContext.get().partitionId()
    for share in shares:
        watch = _Watch(plan, number, share)
        watch.run()
        arrivals = watch.arrivals
        yield json.dumps(
            {
                "histogram": sorted(arrivals.histogram.items()),
                "seconds": [(at, sorted(h.items())) for at, h in sorted(arrivals.seconds.items())],
                "beforeSent": arrivals.before_sent,
            }
        )


class _Watch:
    """One consumer's life."""

    def __init__(self, plan: Plan, number: int, share: list[Any]) -> None:
        self._plan = plan
        self._run = plan.run.encode()
        self._name = f"probe-{number}"
        self._source_topic = {t.target: t.source for t in plan.topics}
        self._tail = journal.Tail(plan.source, plan.run)
        self._consumer = make_consumer(plan.target)
        assign(self._consumer, [(TopicPartition(t, p), offset) for t, p, offset in share])
        self._not_ready = {(t, p) for t, p, _ in share}
        self._open = {(t.source, p) for t in plan.topics for p in range(t.partitions)}
        """Sentinels that no consumer has seen."""
        self._seen: list[tuple[str, int]] = []
        """Those that this one saw and has not told the others."""
        self._give_up_at = time.monotonic() + plan.test.spec.settle_seconds + START_S
        self.arrivals = Arrivals()

    def run(self) -> None:
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

    def _see(self, message: Message) -> None:
        at = (message.topic(), message.partition())
        if self._not_ready:  # a record or the end: either way the consumer is in place there
            self._not_ready.discard(at)
            if not self._not_ready:
                self._tell(journal.READY, {})
        if not journal.is_record(message, f"read {at[0]}-{at[1]} of {self._plan.target.alias}"):
            return
        sighting = messages.recognise(message, self._run)
        if sighting is None:
            return
        if sighting.sentinel is None:
            self.arrivals.add(sighting.timestamp_ms, time.time_ns() // 1_000_000)
        else:
            self._seen.append((self._source_topic[at[0]], sighting.sentinel))

    def _talk(self) -> None:
        """Tell the other consumers what was seen, and hear from them and from the load."""
        if self._seen:
            self._tell(journal.SENTINELS, self._seen)
            self._open.difference_update(self._seen)
            self._seen = []
        settle_s = self._plan.test.spec.settle_seconds
        for fact, value in self._tail.poll(0):
            if fact == journal.MANIFEST:
                self._give_up_at = time.monotonic() + settle_s
            elif fact.endswith(f"/{journal.SENTINELS}"):
                self._open.difference_update((topic, partition) for topic, partition in value)
            elif fact.endswith(f"/{journal.PROGRESS}"):
                # While the load goes on; without a word for so long, its producers are dead.
                self._give_up_at = time.monotonic() + settle_s + START_S

    def _tell(self, what: str, value: Any) -> None:
        fact = journal.key(self._plan.run, self._name, what)
        journal.write(self._plan.source, fact, json.dumps(value))


def _put_together(rows: list[dict[str, Any]], missing: tuple[str, ...]) -> Measured:
    seconds: dict[int, list[dict[int, int]]] = defaultdict(list)
    for row in rows:
        for at, histogram in row["seconds"]:
            seconds[at].append(dict(histogram))
    return Measured(
        histogram=merged(dict(row["histogram"]) for row in rows),
        seconds=tuple(second(at, seconds[at]) for at in sorted(seconds)),
        before_sent=sum(row["beforeSent"] for row in rows),
        unmeasured_topics=missing,
    )
