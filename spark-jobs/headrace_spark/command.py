"""The command lines of the three scripts, and what their exit codes mean.

0 done (``verify``: Passed), 1 Failed, 2 Inconclusive, gave up or crashed, 3 bad usage or input.
Events are printed on standard output, a JSON object a line; sentences on standard error.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError
from pyspark.errors import PySparkException

from headrace.api import Verdict, load
from headrace.errors import GaveUp, HeadraceError, InvalidSpec, from_exception
from headrace.kafka import journal
from headrace.mirror_test import (
    Acknowledged,
    Document,
    Fault,
    Faults,
    LoadManifest,
    Measured,
    MirroredTopic,
    Rehearsed,
    Result,
    Run,
    bounded,
    documents,
    journal_keys,
    latency,
    own_latency,
    points,
)
from headrace_spark import mirror_tester_flags, producer, verifier, waiting
from headrace_spark import probe as watching
from headrace_spark.mirror_tester_flags import USAGE, Parser
from headrace_spark.phases import Phases
from headrace_spark.session import session
from headrace_spark.verdict import Evidence, acknowledged_per_second, judge

DONE, FAILED, INCONCLUSIVE = range(3)
_CODES = {Verdict.PASSED: DONE, Verdict.FAILED: FAILED, Verdict.INCONCLUSIVE: INCONCLUSIVE}


def produce() -> int:
    """Send the load; writes ``manifest.json`` into the folder, and the same into the journal. Ends
    early when a file ``end-load`` appears beside the test's."""
    does = "send the load of a mirror test"
    parser = mirror_tester_flags.produce_parser(does) if mirror_tester_flags.given() else None
    return _end(_produce, parser or _with_metrics(_parser(does)))


def probe() -> int:
    """Measure the load's arrival; writes ``probe.json`` into the folder, and the same into the
    journal. A file ``ready`` there says that the load may begin."""
    does = "watch the load of a mirror test arrive on the target"
    flags = mirror_tester_flags.given()
    parser = mirror_tester_flags.consume_parser(does, 8000) if flags else _parser(does)
    if not flags:
        _with_metrics(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds to wait for the target's topics, settleSeconds at least (60)",
    )
    return _end(_probe, parser)


def verify() -> int:
    """Compare and judge; writes ``report.json`` and ``report.html`` into the folder; in a cluster,
    ``report.json`` into a ConfigMap."""
    does = "compare both clusters and judge the mirror between them"
    flags = mirror_tester_flags.given()
    parser = mirror_tester_flags.consume_parser(does) if flags else _parser(does)
    parser.add_argument(
        "--config-map",
        metavar="NAMESPACE/NAME",
        help="ConfigMap that gets report.json, instead of a page in the folder",
    )
    parser.add_argument(
        "--chaos",
        type=Path,
        help="file with the steps of chaos, whose outcome is in the journal",
    )
    return _end(_verify, parser)


def _with_metrics(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--metrics-port",
        type=int,
        help="serve metrics with kafka-mirror-tester's names there (none are served)",
    )
    return parser


def _parser(does: str) -> argparse.ArgumentParser:
    parser = Parser(description=does)
    parser.add_argument(
        "--test", type=Path, required=True, help="file with a MirrorTest that has source and target"
    )
    parser.add_argument("--name", help="which MirrorTest, where the file has several")
    parser.add_argument("--run", required=True, help="name of this run, the same for all its jobs")
    parser.add_argument("--out", type=Path, required=True, help="folder of this run's documents")
    parser.add_argument("--secrets", type=Path, help="folder of Secrets, <name>/<key>")
    return parser


def _end(job: Callable[[Run, argparse.Namespace], int], parser: argparse.ArgumentParser) -> int:
    """Run a job; every way it can end gets its code, and every error a sentence."""
    arguments = parser.parse_args()
    try:
        by_flags = arguments.test is None
        run = mirror_tester_flags.run(arguments) if by_flags else _run(arguments)
        arguments.out.mkdir(parents=True, exist_ok=True)
        return job(run, arguments)
    except InvalidSpec as error:
        _say(str(error))
        return USAGE
    except HeadraceError as error:
        _say(str(error))
    except (PySparkException, Py4JError) as error:
        _say(_spark_sentence(error))
    except OSError as error:
        _say(str(from_exception(error)))
    except Exception:  # noqa: BLE001 - the border of the process: Python's own code is 1, Failed
        traceback.print_exc()
    return INCONCLUSIVE


def _run(arguments: argparse.Namespace) -> Run:
    tests = [t for t in load([arguments.test]).tests if arguments.name in (None, t.metadata.name)]
    if len(tests) != 1:
        asked = f" named {arguments.name}" if arguments.name else ""
        raise InvalidSpec(
            f"{arguments.test} has {len(tests)} MirrorTests{asked}: say which with --name"
        )
    try:
        run = Run(name=arguments.run, test=tests[0], secrets=arguments.secrets)
    except ValidationError:
        raise InvalidSpec(f"--run {arguments.run}: must be 1 to 20 of a-z, 0-9 and '-'") from None
    _ = run.source  # a test that is not resolved is bad input for every job
    if run.test.spec.load.is_endless:
        raise InvalidSpec(
            f"{arguments.test}: spec.load.durationSeconds: 0 is for `headrace verify` and the "
            "operator, which send it in windows; a job sends one: say for how many seconds"
        )
    return run


def _produce(run: Run, arguments: argparse.Namespace) -> int:
    folder: Path = arguments.test.parent if arguments.test else arguments.out
    asked = folder / documents.END_LOAD
    _create_topics(run, arguments)
    try:
        with session("produce", run.name) as spark:
            manifest = producer.produce(
                spark,
                run,
                lambda acknowledged: _event("progress", acknowledged=acknowledged),
                asked.exists,
                arguments.metrics_port,
            )
    except GaveUp as gave_up:
        raise GaveUp(f"{gave_up}{_how_far(run)}") from gave_up
    documents.write(arguments.out / documents.MANIFEST, manifest)
    _report(run, journal_keys.MANIFEST, manifest)
    _event("manifest", acknowledged=manifest.acknowledged)
    for error in manifest.errors:
        _say(error)
    return INCONCLUSIVE if manifest.errors else DONE


def _create_topics(run: Run, arguments: argparse.Namespace) -> None:
    if arguments.test is None:
        mirror_tester_flags.create_topics(run, arguments)


def _probe(run: Run, arguments: argparse.Namespace) -> int:
    _create_topics(run, arguments)

    def on_ready(missing: tuple[str, ...]) -> None:
        (arguments.out / documents.READY).touch()
        _event("ready", missing=missing)

    with session("probe", run.name) as spark:
        measured = watching.probe(spark, run, arguments.timeout, on_ready, arguments.metrics_port)
    documents.write(arguments.out / documents.MEASURED, measured)
    _report(run, journal_keys.MEASURED, measured)
    return DONE


def _verify(run: Run, arguments: argparse.Namespace) -> int:
    folder: Path = arguments.out
    (folder / documents.REPORT).unlink(missing_ok=True)  # an old verdict must not outlive a crash
    try:
        result = _judged(run, folder, arguments.chaos)
    except InvalidSpec:
        raise
    except HeadraceError as error:
        result = _inconclusive(run, str(error))
    except (PySparkException, Py4JError) as error:
        result = _inconclusive(run, _spark_sentence(error))
    result = bounded(result)
    _event("verdict", verdict=result.verdict, reasons=result.reasons)
    documents.write(folder / documents.REPORT, result)
    if arguments.config_map is None:
        _write_page(folder / documents.PAGE, result)
    else:
        # Needs the client of Kubernetes, which no other use of Spark does.
        from headrace_spark.config_map import put  # noqa: PLC0415

        put(arguments.config_map, documents.REPORT, result.model_dump_json(by_alias=True))
    return _CODES[result.verdict]


def _write_page(path: Path, result: Result) -> None:
    """Write the page; a disk that is too full for it leaves the verdict as it is."""
    # Loads matplotlib, which the tasks of the other jobs would wait for.
    from headrace.report.page import page  # noqa: PLC0415

    try:
        path.write_text(page(result), encoding="utf-8")
    except OSError as error:
        _say(f"there is no page, only {documents.REPORT}: {from_exception(error)}")


def _judged(run: Run, folder: Path, plan: Path | None) -> Result:
    manifest, phases = _manifest(run, folder), Phases()
    phases.add("sending the load", (manifest.finished_ms - manifest.started_ms) / 1000)
    phases.add(
        "from the last message until the comparison began",
        (_now_ms() - manifest.finished_ms) / 1000,
    )
    # Spark starts meanwhile.
    with ThreadPoolExecutor(1) as meanwhile, ExitStack() as ends:
        arrived = meanwhile.submit(
            waiting.wait_for_sentinels,
            run,
            manifest,
            lambda count: _event("waiting", sentinels=count),
        )
        with phases.timed("starting Spark"):
            spark = ends.enter_context(session("verify", run.name))
        with phases.timed("waiting for the end sentinels"):
            arrived.result()
            waiting.wait_for_all(run, manifest)
        _event("reading")
        comparison = verifier.compare(spark, run, manifest, phases)
        if comparison.counts.missing and (left_s := waiting.time_left_s(run, manifest)):
            # What the target has instead, perhaps copies, was counted for it.
            with phases.timed("waiting for what was missing"):
                time.sleep(left_s)
            spark.catalog.clearCache()
            comparison = verifier.compare(spark, run, manifest, phases)
    measured = _found(run, Measured, folder / documents.MEASURED, journal_keys.MEASURED)
    faults = _faults(run, folder, plan)
    rehearsed = documents.read(folder / documents.REHEARSAL, Rehearsed)
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
        judged_ms=_now_ms(),
        phases=phases.ended,
        manifest_sha256=documents.sha256(manifest),
        versions=_versions() | comparison.spark_versions,
    )


def _inconclusive(run: Run, reason: str) -> Result:
    return Result(
        verdict=Verdict.INCONCLUSIVE,
        reasons=(reason,),
        run=run.name,
        flow=run.flow,
        test=run.test,
        judged_ms=_now_ms(),
        versions=_versions(),
    )


def _manifest(run: Run, folder: Path) -> LoadManifest:
    """The manifest of this run; raises ``GaveUp`` without one."""
    path = folder / documents.MANIFEST
    manifest = _found(run, LoadManifest, path, journal_keys.MANIFEST)
    if manifest is None or manifest.run != run.name:
        raise GaveUp(
            f"there is no manifest of run {run.name}, neither in {path} nor in "
            f"{journal.TOPIC} of {run.source.alias}: the load did not end as it should, so nobody "
            f"knows what the target must have{_how_far(run)}"
        )
    return manifest


def _how_far(run: Run) -> str:
    """How far the load came, as the end of a sentence; its producers write that to the journal."""
    try:
        reports = journal.read_all(run.source, run.name)
    except HeadraceError:
        return ""
    acknowledged = Acknowledged()
    for key, value in reports.items():
        acknowledged.receive(key, value)
    return f" (the load came to {acknowledged.total:,} acknowledged messages)"


def _faults(run: Run, folder: Path, plan: Path | None) -> tuple[Fault, ...]:
    """The outcome of each step of chaos; of one that nobody reported, what the plan has."""
    if plan is None:
        return (documents.read(folder / documents.FAULTS, Faults) or Faults()).faults
    if (planned := documents.read(plan, Faults)) is None:
        raise GaveUp(f"{plan} is not there: nobody knows what was to be broken")
    reported = journal.read(run.source, run.name, journal_keys.FAULTS)
    return (Faults.model_validate(reported) if reported else planned).faults


def _report(run: Run, key: str, document: BaseModel) -> None:
    """Write a document into the journal, for a job that has another folder."""
    journal.write(run.source, run.name, key, document.model_dump_json(by_alias=True))


def _found(run: Run, kind: type[Document], path: Path, key: str) -> Document | None:
    """The document of another job of this run: the file's, else the journal's. Raises ``GaveUp``
    for one that is damaged in all places where it is."""
    try:
        if (document := documents.read(path, kind)) is not None:
            return document
    except GaveUp as damaged:
        if (copy := _reported(run, kind, key)) is None:
            raise
        _say(f"{damaged}; the copy in {journal.TOPIC} of {run.source.alias} is taken")
        return copy
    return _reported(run, kind, key)


def _reported(run: Run, kind: type[Document], key: str) -> Document | None:
    """The journal's; raises ``GaveUp`` for one that is damaged."""
    if (value := journal.read(run.source, run.name, key)) is None:
        return None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise GaveUp(
            f"{run.name}/{key} in {journal.TOPIC} of {run.source.alias} cannot be read: "
            f"{error.errors()[0]['msg']}"
        ) from error


def _versions() -> dict[str, str]:
    libraries = ("headrace", "pyspark", "confluent-kafka")
    return {"python": python_version()} | {name: version(name) for name in libraries}


def _spark_sentence(error: Exception) -> str:
    """The first lines of Spark's error, without its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = " ".join(line for line in lines[:3] if not line.startswith("at "))
    return f"Spark could not do it: {sentence[:600]}"


def _event(event: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def _say(sentence: str) -> None:
    sys.stderr.write(f"headrace: {sentence}\n")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
