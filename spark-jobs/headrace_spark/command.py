"""Entry points of the three scripts, and their exit codes.

The exit code is 0 for success (``verify``: Passed), 1 for Failed, 2 for Inconclusive, an error or a
crash, and 3 for wrong flags or input. Standard output contains events, one JSON object a line.
Standard error contains messages for the user.
"""

import argparse
import hashlib
import os
import traceback
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace import logs
from headrace.api import Verdict
from headrace.errors import GaveUp, HeadraceError, InvalidSpec, from_exception
from headrace.mirror_test import (
    HEAP_MIB,
    JAVA_OPTIONS,
    MirrorTestRun,
    Result,
    Stage,
    bounded,
    documents,
    local_slots,
)
from headrace.toolchain.spark import local_spark
from headrace_spark import flags, job_documents, messages, producer, verify_job
from headrace_spark import probe as watching
from headrace_spark.audit.judging import judged as audit_of_topics
from headrace_spark.flags import USAGE
from headrace_spark.live_metrics import nowhere
from headrace_spark.session import event, say, session, spark_sentence

DONE, FAILED, INCONCLUSIVE = range(3)
_CODES = {Verdict.PASSED: DONE, Verdict.FAILED: FAILED, Verdict.INCONCLUSIVE: INCONCLUSIVE}


def produce() -> int:
    """Send the load, and write ``manifest.json`` into the folder and into the journal.

    The load ends early if a file ``end-load`` appears in the folder of the test's file.
    """
    return _end(Stage.PRODUCE, _produce, flags.produce_parser())


def probe() -> int:
    """Measure the arrival of the load, and write ``probe.json`` into the folder and the journal.

    The job creates the file ``ready`` in the folder when the load may begin.
    """
    return _end(Stage.PROBE, _probe, flags.probe_parser())


def verify() -> int:
    """Compare and judge, and write ``report.json`` and ``report.html`` into the folder.

    With ``--config-map``, ``report.json`` is also written into that ConfigMap, and there is no
    page.
    """
    return _end(Stage.VERIFY, _verify, flags.verify_parser())


_CONFIGURED_BY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Environment variables that are set if Spark is configured outside this program: by spark-submit,
or by a user who sets its arguments."""


def _configure_spark(stage: Stage, run: MirrorTestRun, folder: Path) -> None:
    """Use the Spark of this installation, unless environment variables configure another Spark."""
    if os.environ.keys().isdisjoint(_CONFIGURED_BY):
        slots = local_slots(stage, run.test.spec.load.producers)
        options = (HEAP_MIB[stage], JAVA_OPTIONS[stage])
        environment = local_spark(slots, *options, folder / "scratch")
        os.environ.clear()
        os.environ.update(environment)


def _end(
    stage: Stage,
    job: Callable[[MirrorTestRun, argparse.Namespace], int],
    parser: argparse.ArgumentParser,
) -> int:
    """Run a job and return its exit code. Print each error as a message."""
    arguments = parser.parse_args()
    try:
        logs.configure()
        run = flags.run_of(arguments)
        arguments.out.mkdir(parents=True, exist_ok=True)
        _configure_spark(stage, run, arguments.out)
        return job(run, arguments)
    except InvalidSpec as error:
        say(str(error))
        return USAGE
    except HeadraceError as error:
        say(str(error))
    except (PySparkException, Py4JError) as error:
        say(spark_sentence(error))
    except OSError as error:
        say(str(from_exception(error)))
    except Exception:  # noqa: BLE001 - an uncaught error would exit with 1, the code of Failed
        traceback.print_exc()
    return INCONCLUSIVE


def _produce(run: MirrorTestRun, arguments: argparse.Namespace) -> int:
    folder: Path = arguments.test.parent if arguments.test else arguments.out
    asked = folder / documents.END_LOAD
    flags.create_topics(run, arguments)
    try:
        with session("produce", run.name) as spark:
            manifest = producer.produce(
                spark,
                run,
                lambda acknowledged: event("progress", acknowledged=acknowledged),
                asked.exists,
                flags.sink(arguments) or nowhere,
            )
    except (HeadraceError, PySparkException, Py4JError) as error:
        job_documents.write_failure(run)
        if isinstance(error, GaveUp):
            raise GaveUp(f"{error}{job_documents.how_far(run)}") from error
        raise
    job_documents.write_manifest(run, arguments.out, manifest)
    event("manifest", acknowledged=manifest.acknowledged)
    for sentence in manifest.errors:
        say(sentence)
    return INCONCLUSIVE if manifest.errors else DONE


def _probe(run: MirrorTestRun, arguments: argparse.Namespace) -> int:
    flags.create_topics(run, arguments)

    def on_ready(missing: tuple[str, ...]) -> None:
        (arguments.out / documents.READY).touch()
        event("ready", missing=missing)

    with session("probe", run.name) as spark:
        sink = flags.sink(arguments)
        measured = watching.probe(spark, run, arguments.timeout, on_ready, sink)
    job_documents.write_measured(run, arguments.out, measured)
    return DONE


def _verify(run: MirrorTestRun, arguments: argparse.Namespace) -> int:
    folder: Path = arguments.out
    (folder / documents.REPORT).unlink(missing_ok=True)  # no old report remains after a crash
    try:
        if run.test.spec.audit is not None:
            result = audit_of_topics(run)
        else:
            plans = (arguments.chaos, arguments.rehearsal)
            result = verify_job.judged(run, folder, *plans, arguments.begin)
    except InvalidSpec as error:
        if arguments.config_map is None:
            raise
        result = verify_job.inconclusive(run, str(error))
    except HeadraceError as error:
        result = verify_job.inconclusive(run, str(error))
    except (PySparkException, Py4JError) as error:
        result = verify_job.inconclusive(run, spark_sentence(error))
    if arguments.test is not None:
        digest = hashlib.sha256(arguments.test.read_bytes()).hexdigest()
        result = result.model_copy(update={"test_sha256": digest})
    result = bounded(result)
    event("verdict", verdict=result.verdict, reasons=result.reasons)
    documents.write(folder / documents.REPORT, result)
    if arguments.config_map is None:
        _write_page(folder / documents.PAGE, result)
    else:
        # Imported here, because only this case requires the Kubernetes client.
        from headrace_spark.job_documents import put  # noqa: PLC0415

        put(arguments.config_map, documents.REPORT, result.model_dump_json(by_alias=True))
        if run.test.spec.audit is not None:
            return _CODES[result.verdict]
        try:
            created = messages.created_topics(run).model_dump_json(by_alias=True, exclude_none=True)
            put(arguments.config_map, documents.TOPICS, created)
        except HeadraceError as error:  # the journal contains the topics for a week
            say(f"the ids of the run's topics could not be stored with the report: {error}")
    return _CODES[result.verdict]


def _write_page(path: Path, result: Result) -> None:
    """Write the page. If the disk is full, print a message and keep the verdict."""
    # Imported here, because it loads matplotlib, which would delay the tasks of the other jobs.
    from headrace.report.pages import page  # noqa: PLC0415

    try:
        path.write_text(page(result), encoding="utf-8")
    except OSError as error:
        say(f"the page could not be written, only {documents.REPORT}: {from_exception(error)}")
