"""Load of a mirror test. Each Spark task is one producer.

The tasks form a barrier stage, so all of them run at the same time, and only once. If a producer
waited for a free slot, the rate would be too low, and its messages would come after the other
producers had finished.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread
from typing import Any

from pyspark.sql import SparkSession

from headrace.api import MessageFormat, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import KafkaError, Message, journal, make_producer, translate
from headrace.mirror_test import (
    LoadedTopic,
    LoadManifest,
    MirrorTestRun,
    ProducerReports,
    documents,
)
from headrace_spark import messages
from headrace_spark.live_metrics import LoadFigures, Sink, nowhere
from headrace_spark.messages import LoadTopic
from headrace_spark.sender import PROGRESS_S, STUCK_S, Report, run_sender
from headrace_spark.session import now_ms


def send(run: MirrorTestRun, partitions: dict[str, int]) -> None:
    """Send a sentinel to each partition. ``partitions`` is their number by topic.

    Raise ``GaveUp`` or another ``HeadraceError`` if a sentinel is not acknowledged.
    """
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = make_producer(run.source)
    for topic, count in partitions.items():
        for partition in range(count):
            sent_ms = now_ms()
            at = TopicPartition(topic, partition)
            message = messages.sentinel(run.name, at, sent_ms, run.test.spec.load.message_format)
            producer.produce(
                topic,
                message.value,
                b"%d" % partition,
                partition=partition,
                timestamp=sent_ms,
                headers=message.headers,
                on_delivery=delivered,
            )
    if producer.flush(STUCK_S):
        raise GaveUp(f"could not write the end sentinels to {run.source.alias} in {STUCK_S:.0f} s")
    if failures:
        raise translate(failures[0], f"write the end sentinels to {run.source.alias}")


def warnings_of(
    run: MirrorTestRun, load_topics: tuple[LoadTopic, ...], reports: Sequence[Report]
) -> tuple[str, ...]:
    """Return all warnings about the load. ``reports`` are the reports of all producers."""
    return (*_unlike(run, load_topics), *_nameless(run), *_ended(run, reports))


def _unlike(run: MirrorTestRun, load_topics: tuple[LoadTopic, ...]) -> tuple[str, ...]:
    """Return a warning for each topic with another number of partitions than requested."""
    wanted = run.test.spec.load.partitions
    return tuple(
        f"topic {t.name} was there with {t.partitions} partitions, not {wanted}"
        for t in load_topics
        if t.partitions != wanted
    )


def _nameless(run: MirrorTestRun) -> tuple[str, ...]:
    """Return a warning if messages are too small to contain the name of their topic."""
    load = run.test.spec.load
    names = [t for t in run.topics if not messages.has_room(t, load.message_size_bytes)]
    if load.message_format is not MessageFormat.BODY or len(run.topics) < 2 or not names:
        return ()
    return (
        f"messages of {load.message_size_bytes} bytes have no room for the name of their topic "
        f"({', '.join(names[:3])}): if the mirror exchanged equal messages of two topics, "
        "that would not be detected",
    )


def _ended(run: MirrorTestRun, reports: Sequence[Report]) -> tuple[str, ...]:
    """Return a warning if a user ended the load before everything was sent."""
    if run.test.spec.load.is_endless or not any(report.was_ended for report in reports):
        return ()
    sent = sum(stream.sent for report in reports for stream in report.streams)
    planned = run.test.spec.load.messages
    of = f"{planned:,} messages" if planned else f"{run.test.spec.load.duration_seconds} s of load"
    return (f"the load was ended early by a user: {sent:,} messages were sent, of {of}",)


OnProgress = Callable[[int], None]
OnReport = Callable[[str, Any], None]
"""Callback that receives a key and a value of the journal."""


def produce(
    spark: SparkSession,
    run: MirrorTestRun,
    on_progress: OnProgress,
    is_to_end: Callable[[], bool],
    sink: Sink = nowhere,
) -> LoadManifest:
    """Send the load and a sentinel to every partition, and return the manifest.

    About twice a second, a thread calls ``on_progress`` with the number of acknowledged messages,
    and ``is_to_end``. If ``is_to_end`` returns True, the producers stop. ``sink`` receives the
    metrics. Raise ``GaveUp`` if sentinels are not acknowledged.
    """
    messages.prepare(run)
    load_topics = messages.describe(run)
    starts = messages.ends(run.source, {t.name: t.partitions for t in load_topics})
    there = messages.on_target(run)
    target_starts = messages.ends(run.target, there) if there else {}
    figures = LoadFigures(run.test.spec.load, [t.partitions for t in load_topics])
    acknowledged = ProducerReports()

    def on_report(key: str, value: Any) -> None:
        figures.receive(key, value)
        if acknowledged.receive(key, value):
            on_progress(acknowledged.total)

    with sink(figures.text):
        reports = _run_stage(spark, run, load_topics, on_report, is_to_end)
    changes: dict[str, int] = journal.read(run.source, run.name, documents.TOPICS_KEY) or {}
    all_topics = messages.changed(run, load_topics, changes)
    partitions = {t.name: t.partitions for t in all_topics}
    send(run, partitions)
    ends = messages.ends(run.source, partitions)
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
    run: MirrorTestRun,
    load_topics: tuple[LoadTopic, ...],
    on_report: OnReport,
    is_to_end: Callable[[], bool],
) -> list[Report]:
    count = run.test.spec.load.producers
    tail = journal.JournalTail(run.source, run.name)
    done = Event()
    follower = Thread(target=_follow, args=(run, tail, on_report, is_to_end, done))
    follower.start()
    try:
        return (
            spark.sparkContext.parallelize(range(count), count)
            .barrier()
            .mapPartitions(partial(run_sender, run, load_topics))
            .collect()  # one report for each producer, regardless of the number of records
        )
    finally:
        done.set()
        follower.join()


def _padded(offsets: tuple[int, ...], partitions: int) -> tuple[int, ...]:
    """Return the offsets, with 0 for partitions that did not exist."""
    return offsets + (0,) * (partitions - len(offsets))


def _follow(
    run: MirrorTestRun,
    tail: journal.JournalTail,
    on_report: OnReport,
    is_to_end: Callable[[], bool],
    done: Event,
) -> None:
    """Pass the producers' reports in the journal to ``on_report``.

    Write the request to end the load into the journal when ``is_to_end`` returns True.
    """
    ending = False
    while not done.is_set():
        if not ending and is_to_end():
            journal.write(run.source, run.name, documents.END_KEY, "{}")
            ending = True
        for key, value in tail.poll(PROGRESS_S):
            on_report(key, value)
    tail.close()
