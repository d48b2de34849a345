"""The command lines of the three scripts, and what their exit codes mean.

0 done (``verify``: Passed), 1 Failed, 2 Inconclusive, gave up or crashed, 3 bad usage or input.
Events are printed on standard output, a JSON object a line; sentences on standard error.
"""

import argparse
import hashlib
import traceback
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace.api import Verdict
from headrace.errors import GaveUp, HeadraceError, InvalidSpec, from_exception
from headrace.mirror_test import MirrorTestRun, Result, bounded, documents
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

    It ends early if a file ``end-load`` appears next to the test's file.
    """
    return _end(_produce, flags.produce_parser())


def probe() -> int:
    """Measure the load's arrival, and write ``probe.json`` into the folder and into the journal.

    A file ``ready`` in the folder says that the load may begin.
    """
    return _end(_probe, flags.probe_parser())


def verify() -> int:
    """Compare and judge, and write ``report.json`` and ``report.html`` into the folder.

    In a cluster, ``report.json`` is written into a ConfigMap.
    """
    return _end(_verify, flags.verify_parser())


def _end(
    job: Callable[[MirrorTestRun, argparse.Namespace], int], parser: argparse.ArgumentParser
) -> int:
    """Run a job; every way it can end gets its code, and every error a sentence."""
    arguments = parser.parse_args()
    try:
        run = flags.run_of(arguments)
        arguments.out.mkdir(parents=True, exist_ok=True)
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
    except Exception:  # noqa: BLE001 - the border of the process: Python's own code is 1, Failed
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
    (folder / documents.REPORT).unlink(missing_ok=True)  # an old verdict must not outlive a crash
    try:
        if run.test.spec.audit is not None:
            result = audit_of_topics(run)
        else:
            plans = (arguments.chaos, arguments.rehearsal)
            result = verify_job.judged(run, folder, *plans, arguments.begin)
    except InvalidSpec:
        raise
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
        # Needs the client of Kubernetes, which no other use of Spark does.
        from headrace_spark.job_documents import put  # noqa: PLC0415

        put(arguments.config_map, documents.REPORT, result.model_dump_json(by_alias=True))
        try:
            created = messages.created_topics(run).model_dump_json(by_alias=True, exclude_none=True)
            put(arguments.config_map, documents.TOPICS, created)
        except HeadraceError as error:  # the journal still has the topics, for a week
            say(f"the ids of the run's topics are not beside the report: {error}")
    return _CODES[result.verdict]


def _write_page(path: Path, result: Result) -> None:
    """Write the page; a disk that is too full for it leaves the verdict as it is."""
    # Loads matplotlib, which the tasks of the other jobs would wait for.
    from headrace.report.pages import page  # noqa: PLC0415

    try:
        path.write_text(page(result), encoding="utf-8")
    except OSError as error:
        say(f"there is no page, only {documents.REPORT}: {from_exception(error)}")
