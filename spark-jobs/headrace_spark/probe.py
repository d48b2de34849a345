"""Watches the load arrive on the target: plain consumers, one a Spark task.

They begin before the first message is sent, at the end of every partition, and end when all
sentinels are seen, or the time that the mirror has is over. Nobody else knows what was late: the
target's records bear the source's timestamps.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from headrace.api import ClusterAccess, Partitioning, TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import Admin, Message, Position, assign, journal, make_consumer, make_producer
from headrace.mirror_test import Measured, Run, journal_keys
from headrace_spark import messages, topics
from headrace_spark.crossings import Crossings, SourceWatch, clock_ms
from headrace_spark.latency import Arrivals, merged, seconds
from headrace_spark.live_metrics import ArrivalFigures, SequenceCounts, served

POLL_S = 0.5
START_S = 900.0
"""How long the load may take to begin: on Kubernetes it waits for the Job of chaos, its image
and its executors, up to 300 s each."""
QUIET_S = 10.0
"""How long a target that has more records may give none of them."""

Sentinel = tuple[str, int]
"""Topic of the target, partition of the source."""
MOST_PER_SECOND = 20_000
"""Of the load, for each consumer: beyond, the mirror's own share is not measured. The source's
consumer takes time from the target's, in the same process, and both would be late."""

Starts = dict[TopicPartition, int]
"""Partitions, and where to begin."""


class Watched(NamedTuple):
    """What one consumer found."""

    arrivals: Arrivals
    own: Arrivals
    """The mirror's own share."""
    late: set[Sentinel]
    """As far as it knows."""


class Share(NamedTuple):
    """What one consumer of each side reads."""

    target: Starts
    source: Starts


OnReady = Callable[[tuple[str, ...]], None]


def probe(
    spark: SparkSession,
    run: Run,
    wait_s: float,
    on_ready: OnReady,
    metrics_port: int | None = None,
) -> Measured:
    """Measure until the end of the run.

    Waits for the target's topics as long as ``wait_s`` and settleSeconds allow; those that are not
    there then are not measured. ``on_ready`` is called with their names when every consumer is in
    place, at the end of its partitions. With ``metrics_port``, metrics are served there meanwhile.
    """
    topics.prepare(run)
    there = _wait_for_topics(run, max(wait_s, run.test.spec.settle_seconds))
    missing = tuple(name for name in run.first_topics.values() if name not in there)
    if not there:
        on_ready(missing)
        return Measured(unmeasured_topics=missing)
    sources = {target: source for source, target in run.first_topics.items() if target in there}
    counts = Admin(run.source).topics()
    starts = _ends(run.target, there)
    origins = dict(_ends(run.source, {name: counts[name] for name in sources.values()}))
    if not _times_both(run):
        origins.clear()
    sentinels = {(target, p) for target, name in sources.items() for p in range(counts[name])}
    # As many as there are producers: what they can send, these can read.
    count = min(run.test.spec.load.producers, len(starts))
    tail = journal.Tail(run.source, run.name)
    done = Event()
    figures = ArrivalFigures()
    is_served = metrics_port is not None
    keys = {t.target: t.keys for t in topics.describe(run)} if is_served else {}
    followed = (tail, count, lambda: on_ready(missing), figures if is_served else None, done)
    follower = Thread(target=_follow, args=followed)
    follower.start()
    try:
        with served(metrics_port, figures.text):
            watches = (
                spark.sparkContext.parallelize(
                    [_share(run, dict(starts[n::count]), origins) for n in range(count)], count
                )
                .barrier()
                .mapPartitions(partial(_run_consumer, run, sentinels, keys))
                .collect()  # counts a consumer, whatever the number of records
            )
    finally:
        done.set()
        follower.join()
    seen, own = [watch.arrivals for watch in watches], [watch.own for watch in watches]
    # A partition that the target has by now and did not have then was watched by nobody.
    grown = {name for name, now in topics.on_target(run).items() if now != there.get(name)}
    late = set.intersection(*(watch.late for watch in watches))
    return Measured(
        histogram=merged(arrivals.histogram for arrivals in seen),
        seconds=seconds(seen),
        own_histogram=merged(arrivals.histogram for arrivals in own),
        own_seconds=seconds(own),
        before_sent=sum(arrivals.before_sent for arrivals in seen),
        unmeasured_topics=missing,
        late=tuple(
            str(TopicPartition(sources[topic], p))
            for topic, p in sorted(late)
            if topic not in grown
        ),
    )


def _ends(cluster: ClusterAccess, there: dict[str, int]) -> list[tuple[TopicPartition, int]]:
    return [
        (TopicPartition(topic, partition), offset)
        for topic, offsets in topics.ends(cluster, there).items()
        for partition, offset in enumerate(offsets)
    ]


def _share(run: Run, target: Starts, origins: Starts) -> Share:
    """With the partitions of the source whose messages come to these of the target: where
    partitions are not preserved, any of them may. With none of a load that is too fast for both."""
    if not origins:
        return Share(target, origins)
    if run.test.spec.partitioning is not Partitioning.PRESERVED:
        return Share(target, origins)
    mirrored = {TopicPartition(run.first_topics[at.topic], at.partition): at for at in origins}
    return Share(target, {at: origins[at] for to in target if (at := mirrored.get(to))})


def _times_both(run: Run) -> bool:
    """Whether a consumer can follow the source beside the target without being late for both."""
    load = run.test.spec.load
    preserved = run.test.spec.partitioning is Partitioning.PRESERVED
    share = load.producers if preserved else 1
    rate = load.messages_per_second
    return rate is not None and rate * len(run.first_topics) <= MOST_PER_SECOND * share


def _wait_for_topics(run: Run, wait_s: float) -> dict[str, int]:
    """The target's topics that are there, with their partitions, as soon as all of them are."""
    deadline = time.monotonic() + wait_s
    wanted = set(run.first_topics.values())
    while wanted - (there := topics.on_target(run)).keys() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return there


def _follow(
    tail: journal.Tail,
    count: int,
    on_ready: Callable[[], None],
    figures: ArrivalFigures | None,
    done: Event,
) -> None:
    """Call ``on_ready`` once every consumer has reported that it is in place; for metrics take what
    they report of their messages, until all is done."""
    ready: set[str] = set()
    is_announced = False
    while not done.is_set() and not (is_announced and figures is None):
        for key, value in tail.poll(POLL_S):
            if figures is not None:
                figures.receive(key, value)
            if journal_keys.is_ready(key):
                ready.add(key)
        if len(ready) == count and not is_announced:
            is_announced = True
            on_ready()
    tail.close()


def _run_consumer(
    run: Run, sentinels: set[Sentinel], keys: Mapping[str, int], shares: Iterable[Share]
) -> Iterator[Watched]:
    """A Spark task."""
    number = BarrierTaskContext.get().partitionId()
    for share in shares:
        yield Watch(run, number, sentinels, share, keys).watch()


class Watch:
    """One consumer's life."""

    def __init__(
        self,
        run: Run,
        number: int,
        sentinels: set[Sentinel],
        share: Share,
        keys: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``keys``: of the topics of the target, where messages are to be counted as they come."""
        self._run = run
        self._run_name = run.name.encode()
        self._name = f"probe-{number}"
        self._tail = journal.Tail(run.source, run.name)
        self._consumer = make_consumer(run.target)
        assign(self._consumer, share.target.items())
        self._next = dict(share.target)
        self._not_ready = set(share.target)
        self._is_announced = False
        self._origins = {to: at for at, to in run.first_topics.items()} if share.source else {}
        self._crossings = Crossings()
        self._source = SourceWatch(run.source, run.name, share.source, self._crossings)
        self._open = set(sentinels)
        """Those that no consumer has seen."""
        self._seen: list[Sentinel] = []
        """Those that this one saw and has not reported to the others."""
        self._settle_s = run.test.spec.settle_seconds
        self._give_up_at = time.monotonic() + self._settle_s + START_S
        self._load_has_ended = False
        self._arrivals = Arrivals()
        self._counts = SequenceCounts(keys) if keys else None
        """Only where the probe serves metrics."""
        self._reporter = make_producer(run.source) if keys else None

    def watch(self) -> Watched:
        """Until every sentinel is seen, by whichever consumer, or the mirror's time is over."""
        try:
            return Watched(self._arrivals, self._crossings.measured, late=self._watch())
        finally:
            self._source.close()

    def _watch(self) -> set[Sentinel]:
        exchange_at = 0.0
        while self._open and (now := time.monotonic()) < self._give_up_at:
            message = self._consumer.poll(0.1)
            if message is not None:
                self._see(message)
            if now >= exchange_at:
                exchange_at = now + POLL_S
                self._exchange()
        knows = self._load_has_ended
        if self._run.test.spec.partitioning is not Partitioning.PRESERVED:
            # Behind the sentinels, too, there may be messages: of other partitions.
            knows &= self._reads_what_is_there()
        elif self._open:
            knows = knows and self._reads_what_is_there()
        self._exchange()
        self._consumer.close()
        self._tail.close()
        return self._open if knows else set()

    def _reads_what_is_there(self) -> bool:
        """What came in time is not late because this consumer is behind; whether it caught up."""
        try:
            ends = Admin(self._run.target).offsets(self._next, Position.LAST_STABLE)
        except HeadraceError:
            return False
        quiet_at = time.monotonic() + QUIET_S
        while any(self._next[at] < end for at, end in ends.items()):
            message = self._consumer.poll(0.1)
            if message is not None:
                self._see(message)
                quiet_at = time.monotonic() + QUIET_S
            elif time.monotonic() > quiet_at:
                return False
        return True

    def _see(self, message: Message) -> None:
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        self._not_ready.discard(at)  # a record or the end: the consumer is in place there
        offset = message.offset() or 0
        if not journal.is_record(message, f"read {at} of {self._run.target.alias}"):
            if at in self._next:  # its end, behind a transaction's mark; other errors name none
                self._next[at] = max(self._next[at], offset)
            return
        self._next[at] = offset + 1
        sighting = messages.recognise(message, self._run_name)
        if sighting is None:
            return
        if sighting.sentinel is None:
            seen_ms = time.time_ns() // 1_000_000
            self._arrivals.add(sighting.timestamp_ms, seen_ms)
            if self._counts is not None:
                size_bytes = len(message.value() or b"")
                latency_ms = max(0, seen_ms - sighting.timestamp_ms)
                self._counts.add(at.topic, sighting.name, size_bytes, latency_ms)
            if (topic := self._origins.get(at.topic)) is not None:
                self._crossings.on_target((topic, *sighting.name), clock_ms())
        else:
            # It has arrived, wherever it lies; a wrong place is the comparison's to find.
            topic = self._run.topics.get(sighting.topic or "", at.topic)
            self._seen.append((topic, sighting.sentinel))

    def _exchange(self) -> None:
        """Report new sentinels to the other consumers; receive theirs, and the load's progress.
        Once, report that this one's consumers are in place."""
        if not (self._is_announced or self._not_ready) and self._source.is_ready:
            self._is_announced = True
            self._write(journal_keys.ready(self._name), {})
        if self._seen:
            self._write(journal_keys.sentinels(self._name), self._seen)
            self._open.difference_update(self._seen)
            self._seen = []
        self._report_counts()
        for key, value in self._tail.poll(0):
            if key == journal_keys.MANIFEST:
                self._load_has_ended = True
                self._give_up_at = time.monotonic() + self._settle_s
            elif journal_keys.is_sentinels(key):
                self._open.difference_update((topic, partition) for topic, partition in value)
            elif journal_keys.is_progress(key):
                # While the load goes on; without a report for so long, its producers are dead.
                self._give_up_at = time.monotonic() + self._settle_s + START_S

    def _report_counts(self) -> None:
        """Without waiting for the broker: a consumer that waits measures itself."""
        if self._counts is None or self._reporter is None:
            return
        with suppress(BufferError):  # full: next time
            self._reporter.produce(
                journal.TOPIC,
                json.dumps(self._counts.report()).encode(),
                journal.record_key(self._run.name, journal_keys.seen(self._name)),
                partition=0,
            )
        self._reporter.poll(0)

    def _write(self, key: str, value: Any) -> None:
        journal.write(self._run.source, self._run.name, key, json.dumps(value))
