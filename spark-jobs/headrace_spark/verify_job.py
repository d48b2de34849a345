"""Verification of a run, from the manifest to the verdict."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.api import Partitioning, TopicPartition, Verdict
from headrace.kafka import Position, assign, journal, make_consumer
from headrace.mirror_test import (
    LoadManifest,
    MirroredTopic,
    MirrorTestRun,
    Result,
    documents,
    latency,
    own_latency,
    planned_messages,
    points,
)
from headrace_spark import job_documents, messages
from headrace_spark.comparison import ClusterComparison, compare
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.session import Phases, event, now_ms, session, versions
from headrace_spark.verdict import Evidence, acknowledged_per_second, checks, judge, objections

_POLL_S = 0.5
_BEGIN_POLL_S = 0.1


def wait_for_file(path: Path) -> None:
    """Wait until a file exists. The parent process creates it, or ends this process."""
    while not path.exists():
        time.sleep(_BEGIN_POLL_S)


def wait_for_sentinels(
    run: MirrorTestRun, manifest: LoadManifest, on_wait: Callable[[int], None]
) -> None:
    """Wait until every end sentinel is on the target, or ``settleSeconds`` have elapsed.

    The wait only determines when the comparison begins. The comparison reads the whole range and
    decides which records arrived. ``on_wait`` is called about every second with the number of
    missing sentinels.
    """
    deadline_s = manifest.finished_ms / 1000 + run.test.spec.settle_seconds
    expected = {(run.topics[t.name], p) for t in manifest.topics for p in range(t.partitions)}
    assigned: dict[str, int] = {}
    consumer = make_consumer(run.target)
    try:
        while expected and time.time() < deadline_s:
            there = messages.on_target(run)
            if there != assigned:
                assign(consumer, _from_the_end_of_the_load(run, manifest, there))
                assigned = there
            on_wait(len(expected))
            refresh_at = time.monotonic() + 1
            while expected and time.monotonic() < refresh_at:
                message = consumer.poll(0.1)
                if message is None or not journal.is_record(message, "read the end sentinels"):
                    continue
                sighting = messages.recognise(message, run.name.encode())
                if sighting is not None and sighting.sentinel is not None:
                    # Any position counts as arrived, because the comparison reports wrong
                    # positions.
                    topic = run.topics.get(sighting.topic or "", message.topic() or "")
                    expected.discard((topic, sighting.sentinel))
    finally:
        consumer.close()


def wait_for_all(run: MirrorTestRun, manifest: LoadManifest) -> None:
    """Wait until the target has as many records as were sent, or ``settleSeconds`` have elapsed.

    If partitions are not preserved, records of other partitions may still be in flight after a
    sentinel. The comparison decides whether the right records arrived.
    """
    sent = manifest.acknowledged + sum(t.partitions for t in manifest.topics)
    known = {run.topics[t.name]: sum(t.target_start_offsets) for t in manifest.topics}
    while time_left_s(run, manifest) > 0:
        ends = messages.ends(run.target, messages.on_target(run))
        if sum(sum(ends[name]) - known[name] for name in ends) >= sent:
            return
        time.sleep(_POLL_S)


def time_left_s(run: MirrorTestRun, manifest: LoadManifest) -> float:
    """Return the time, in s, in which records may still arrive after the sentinels.

    It is 0 if partitions are preserved, because each partition then has its own sentinel.
    """
    if run.test.spec.partitioning is Partitioning.PRESERVED:
        return 0.0
    deadline_s = manifest.finished_ms / 1000 + run.test.spec.settle_seconds
    return max(deadline_s - time.time(), 0.0)


def _from_the_end_of_the_load(
    run: MirrorTestRun, manifest: LoadManifest, partition_counts: dict[str, int]
) -> list[tuple[TopicPartition, int]]:
    """Return the first offset of each partition after the last acknowledgement.

    The offset is the end of the partition if no record is newer.
    """
    partitions = [
        TopicPartition(name, p) for name, count in partition_counts.items() for p in range(count)
    ]
    admin = PatientAdmin(run.target)
    ends = admin.offsets(partitions, Position.LATEST)  # first, so that no later record is before it
    since = admin.offsets_at(partitions, manifest.finished_ms)
    return [(at, since[at] if since[at] >= 0 else ends[at]) for at in partitions]


def judged(
    run: MirrorTestRun,
    folder: Path,
    plan: Path | None,
    rehearsal: Path | None = None,
    begin: Path | None = None,
) -> Result:
    """Wait for the end of the load on the target, compare, and return the result.

    Args:
        run: The run to judge.
        folder: Folder of the documents.
        plan: File with the chaos steps, if their outcome is in the journal.
        rehearsal: File with the plan of a fail-over, if its outcome is in the journal.
        begin: File to wait for after Spark has started, before the comparison begins.

    Raises:
        GaveUp: There is no manifest, or records were deleted before they were compared. Spark's
            errors are raised if a cluster cannot be read.
    """
    phases = Phases()
    with ExitStack() as ends:
        early = None
        if begin:
            planned = planned_messages(run.test)
            early = ends.enter_context(session("verify", run.name, planned))
            wait_for_file(begin)
        manifest = job_documents.manifest(run, folder)
        comparison = _compared(run, manifest, phases, early)
    measured = job_documents.measured(run, folder)
    faults = job_documents.faults(run, folder, plan)
    rehearsed = job_documents.rehearsed(run, folder, rehearsal)
    evidence = Evidence(
        run=run,
        manifest=manifest,
        counts=comparison.counts,
        examples=comparison.examples,
        open_sentinels=comparison.open_sentinels,
        contradictions=comparison.contradictions,
        measured=measured,
        faults=faults,
        rehearsed=rehearsed,
    )
    verdict, reasons, warnings = judge(evidence)
    return Result(
        verdict=verdict,
        reasons=reasons,
        warnings=warnings,
        checks=checks(objections(evidence)),
        run=run.name,
        flow=run.flow,
        test=run.test,
        topics=tuple(
            MirroredTopic(
                source=t.name,
                target=run.topics[t.name],
                partitions=t.partitions,
                acknowledged=manifest.acknowledged_in(t.name),
            )
            for t in manifest.topics
        ),
        counts=comparison.counts,
        examples=comparison.examples,
        shares=comparison.shares,
        latency_ms=latency(measured.histogram if measured else ()),
        own_latency_ms=own_latency(measured),
        acknowledged_per_second=acknowledged_per_second(manifest),
        points=points(manifest.started_ms, manifest.acknowledged_per_second, measured),
        faults=faults,
        rehearsal=rehearsed,
        started_ms=manifest.started_ms,
        finished_ms=manifest.finished_ms,
        read_until_ms=comparison.read_until_ms,
        judged_ms=now_ms(),
        phases=phases.ended,
        manifest_sha256=documents.sha256(manifest),
        versions=versions() | comparison.spark_versions,
    )


def _compared(
    run: MirrorTestRun, manifest: LoadManifest, phases: Phases, early: SparkSession | None
) -> ClusterComparison:
    phases.add("sending the load", (manifest.finished_ms - manifest.started_ms) / 1000)
    phases.add(
        "from the last message until the comparison began",
        (now_ms() - manifest.finished_ms) / 1000,
    )
    # Wait for the sentinels while Spark starts.
    with ThreadPoolExecutor(1) as meanwhile, ExitStack() as ends:
        arrived = meanwhile.submit(
            wait_for_sentinels,
            run,
            manifest,
            lambda count: event("waiting", sentinels=count),
        )
        with phases.timed("starting Spark"):
            spark = early or ends.enter_context(session("verify", run.name, manifest.records))
        with phases.timed("waiting for the end sentinels"):
            arrived.result()
            wait_for_all(run, manifest)
        event("reading")
        comparison = compare(spark, run, manifest, phases)
        if comparison.counts.missing and (left_s := time_left_s(run, manifest)):
            # ``wait_for_all`` also counts other records of the target, such as duplicates.
            with phases.timed("waiting for missing records"):
                time.sleep(left_s)
            spark.catalog.clearCache()
            comparison = compare(spark, run, manifest, phases)
    return comparison


def inconclusive(run: MirrorTestRun, reason: str) -> Result:
    """Return the Inconclusive result of a run that could not be compared."""
    return Result(
        verdict=Verdict.INCONCLUSIVE,
        reasons=(reason,),
        run=run.name,
        flow=run.flow,
        test=run.test,
        judged_ms=now_ms(),
        versions=versions(),
    )
