"""What the verifier does, from the manifest to the verdict with all that a report shows."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from pyspark.sql import SparkSession

from headrace.api import Verdict
from headrace.mirror_test import (
    LoadManifest,
    MirroredTopic,
    Result,
    Run,
    documents,
    latency,
    own_latency,
    points,
)
from headrace_spark import job_documents, verifier, waiting
from headrace_spark.clocks import now_ms
from headrace_spark.evidence import Evidence
from headrace_spark.load_rules import acknowledged_per_second
from headrace_spark.output import event
from headrace_spark.phases import Phases
from headrace_spark.session import session
from headrace_spark.verdict import judge
from headrace_spark.verifier import Comparison


def judged(
    run: Run,
    folder: Path,
    plan: Path | None,
    rehearsal: Path | None = None,
    begin: Path | None = None,
) -> Result:
    """Wait for the load's end on the target, compare and judge. ``plan``: file with the steps of
    chaos, ``rehearsal``: with that of a fail-over, where the outcome is in the journal. ``begin``:
    file without which nothing begins; Spark starts before. Raises ``GaveUp`` without a manifest,
    and Spark's errors where a cluster cannot be read."""
    phases = Phases()
    with ExitStack() as ends:
        early = ends.enter_context(session("verify", run.name)) if begin else None
        if begin:
            waiting.wait_for_file(begin)
        manifest = job_documents.manifest(run, folder)
        comparison = _compared(run, manifest, phases, early)
    measured = job_documents.measured(run, folder)
    faults = job_documents.faults(run, folder, plan)
    rehearsed = job_documents.rehearsed(run, folder, rehearsal)
    verdict, reasons, warnings = judge(
        Evidence(
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
    )
    return Result(
        verdict=verdict,
        reasons=reasons,
        warnings=warnings,
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
        versions=_versions() | comparison.spark_versions,
    )


def _compared(
    run: Run, manifest: LoadManifest, phases: Phases, early: SparkSession | None
) -> Comparison:
    phases.add("sending the load", (manifest.finished_ms - manifest.started_ms) / 1000)
    phases.add(
        "from the last message until the comparison began",
        (now_ms() - manifest.finished_ms) / 1000,
    )
    # Spark starts meanwhile.
    with ThreadPoolExecutor(1) as meanwhile, ExitStack() as ends:
        arrived = meanwhile.submit(
            waiting.wait_for_sentinels,
            run,
            manifest,
            lambda count: event("waiting", sentinels=count),
        )
        with phases.timed("starting Spark"):
            spark = early or ends.enter_context(session("verify", run.name))
        with phases.timed("waiting for the end sentinels"):
            arrived.result()
            waiting.wait_for_all(run, manifest)
        event("reading")
        comparison = verifier.compare(spark, run, manifest, phases)
        if comparison.counts.missing and (left_s := waiting.time_left_s(run, manifest)):
            # What the target has instead, perhaps copies, was counted for it.
            with phases.timed("waiting for what was missing"):
                time.sleep(left_s)
            spark.catalog.clearCache()
            comparison = verifier.compare(spark, run, manifest, phases)
    return comparison


def inconclusive(run: Run, reason: str) -> Result:
    """Of a run that could not be compared."""
    return Result(
        verdict=Verdict.INCONCLUSIVE,
        reasons=(reason,),
        run=run.name,
        flow=run.flow,
        test=run.test,
        judged_ms=now_ms(),
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    libraries = ("headrace", "pyspark", "confluent-kafka")
    return {"python": python_version()} | {name: version(name) for name in libraries}
