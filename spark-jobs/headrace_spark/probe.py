"""Probe that measures the arrival of the load on the target, with one consumer for each Spark task.

The consumers begin at the end of every partition before the first message is sent. They end when
all sentinels have arrived, or when the time for them is over (``LoadDeadline``). Only the probe can
measure latency, because the records on the target have the source's timestamps.
"""

import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread

from pyspark.sql import SparkSession

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka import journal
from headrace.mirror_test import MirrorTestRun, ProbeMeasurements, documents
from headrace_spark import messages
from headrace_spark.live_metrics import ArrivalFigures, Sink, nowhere
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.probe_consumer import (
    POLL_S,
    consumers,
    merged,
    run_watch,
    seconds,
    share,
    times_both,
)

OnReady = Callable[[tuple[str, ...]], None]


def probe(
    spark: SparkSession,
    run: MirrorTestRun,
    wait_s: float,
    on_ready: OnReady,
    sink: Sink | None = None,
) -> ProbeMeasurements:
    """Measure the arrival of messages until the end of the run.

    The probe waits for the target's topics for ``wait_s`` or ``settleSeconds``, whichever is
    longer. Topics that are still missing are not measured. ``on_ready`` is called with their names
    when every consumer is at the end of its partitions. ``sink`` receives the metrics. Without a
    sink no metrics are collected.
    """
    messages.prepare(run)
    there = _wait_for_topics(run, max(wait_s, run.test.spec.settle_seconds))
    missing = tuple(name for name in run.first_topics.values() if name not in there)
    if not there:
        on_ready(missing)
        return ProbeMeasurements(unmeasured_topics=missing)
    sources = {target: source for source, target in run.first_topics.items() if target in there}
    counts = PatientAdmin(run.source).topics()
    starts = _ends(run.target, there)
    origins = dict(_ends(run.source, {name: counts[name] for name in sources.values()}))
    if not times_both(run, len(starts)):
        origins.clear()
    sentinels = {(target, p) for target, name in sources.items() for p in range(counts[name])}
    count = consumers(run, len(starts))
    tail = journal.JournalTail(run.source, run.name)
    done = Event()
    figures = ArrivalFigures()
    keys = {t.target: t.keys for t in messages.describe(run)} if sink else {}
    followed = (tail, count, lambda: on_ready(missing), figures if sink else None, done)
    follower = Thread(target=_follow, args=followed)
    follower.start()
    try:
        with (sink or nowhere)(figures.text):
            watches = (
                spark.sparkContext.parallelize(
                    [share(run, dict(starts[n::count]), origins) for n in range(count)], count
                )
                .barrier()
                .mapPartitions(partial(run_watch, run, sentinels, keys))
                .collect()  # one result for each consumer, regardless of the number of records
            )
    finally:
        done.set()
        follower.join()
    seen, own = [watch.arrivals for watch in watches], [watch.own for watch in watches]
    # No consumer reads partitions that the target received after the start.
    grown = {name for name, now in messages.on_target(run).items() if now != there.get(name)}
    late = set.intersection(*(watch.late for watch in watches))
    return ProbeMeasurements(
        histogram=merged(arrivals.histogram for arrivals in seen),
        seconds=seconds(seen),
        own_histogram=merged(arrivals.histogram for arrivals in own),
        own_seconds=seconds(own),
        before_sent=sum(arrivals.before_sent for arrivals in seen),
        behind=sum(watch.behind for watch in watches),
        unmeasured_topics=missing,
        late=tuple(
            str(TopicPartition(sources[topic], p))
            for topic, p in sorted(late)
            if topic not in grown
        ),
    )


def _ends(
    cluster: ClusterAccess, partition_counts: dict[str, int]
) -> list[tuple[TopicPartition, int]]:
    return [
        (TopicPartition(topic, partition), offset)
        for topic, offsets in messages.ends(cluster, partition_counts).items()
        for partition, offset in enumerate(offsets)
    ]


def _wait_for_topics(run: MirrorTestRun, wait_s: float) -> dict[str, int]:
    """Return the target's topics with their partitions when all exist or ``wait_s`` has elapsed."""
    deadline = time.monotonic() + wait_s
    wanted = set(run.first_topics.values())
    while wanted - (there := messages.on_target(run)).keys() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return there


def _follow(
    tail: journal.JournalTail,
    count: int,
    on_ready: Callable[[], None],
    figures: ArrivalFigures | None,
    done: Event,
) -> None:
    """Call ``on_ready`` once every consumer has reported that it is ready.

    If ``figures`` is given, also collect the consumers' reports until ``done`` is set.
    """
    ready: set[str] = set()
    is_announced = False
    while not done.is_set() and not (is_announced and figures is None):
        for key, value in tail.poll(POLL_S):
            if figures is not None:
                figures.receive(key, value)
            if documents.is_ready(key):
                ready.add(key)
        if len(ready) == count and not is_announced:
            is_announced = True
            on_ready()
    tail.close()
