"""The load: one Spark task is one producer.

The stage runs once. It is a barrier stage: all its tasks at the same time, or none. A producer that
had to wait for another's slot would halve the rate and send into a finished test.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import Any

from pyspark.sql import SparkSession

from headrace.kafka import journal
from headrace.mirror_test import Acknowledged, LoadedTopic, LoadManifest, Run, documents
from headrace_spark import sentinels, topics
from headrace_spark.live_metrics import LoadFigures, Sink, nowhere
from headrace_spark.load_warnings import warnings_of
from headrace_spark.sender import PROGRESS_S, run_sender
from headrace_spark.sent_streams import Report
from headrace_spark.topics import LoadTopic

OnProgress = Callable[[int], None]
OnReport = Callable[[str, Any], None]
"""Gets a record of the journal."""


def produce(
    spark: SparkSession,
    run: Run,
    on_progress: OnProgress,
    is_to_end: Callable[[], bool],
    sink: Sink = nowhere,
) -> LoadManifest:
    """Send the whole load, then a sentinel to every partition; what was acknowledged.

    ``on_progress`` gets the number of acknowledged messages, about twice a second, from a thread;
    as often ``is_to_end`` is asked whether to send no more. ``sink`` gets the metrics.
    Raises ``GaveUp`` when sentinels are not acknowledged.
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

    with sink(figures.text):
        reports = _run_stage(spark, run, load_topics, on_report, is_to_end)
    changes: dict[str, int] = journal.read(run.source, run.name, documents.TOPICS_KEY) or {}
    all_topics = topics.changed(run, load_topics, changes)
    partitions = {t.name: t.partitions for t in all_topics}
    sentinels.send(run, partitions)
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
        warnings=warnings_of(run, load_topics, reports),
    )


def _run_stage(
    spark: SparkSession,
    run: Run,
    load_topics: tuple[LoadTopic, ...],
    on_report: OnReport,
    is_to_end: Callable[[], bool],
) -> list[Report]:
    count = run.test.spec.load.producers
    tail = journal.Tail(run.source, run.name)
    done = Event()
    follower = Thread(target=_follow, args=(run, tail, on_report, is_to_end, done))
    follower.start()
    try:
        return (
            spark.sparkContext.parallelize(range(count), count)
            .barrier()
            .mapPartitions(partial(run_sender, run, load_topics))
            .collect()  # a report a producer, whatever the number of records
        )
    finally:
        done.set()
        follower.join()


def _padded(offsets: tuple[int, ...], partitions: int) -> tuple[int, ...]:
    """With 0 for the partitions that were not there yet."""
    return offsets + (0,) * (partitions - len(offsets))


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
            journal.write(run.source, run.name, documents.END_KEY, "{}")
            ending = True
        for key, value in tail.poll(PROGRESS_S):
            on_report(key, value)
    tail.close()
