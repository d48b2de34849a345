"""Documents that the jobs of a run exchange.

Each job writes its document into the run's folder and into the journal, because in a cluster each
job has its own folder. A job looks for another job's document in the folder first, and then in the
journal.
"""

import asyncio
from pathlib import Path

from pydantic import BaseModel, ValidationError

from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import journal
from headrace.mirror_test import (
    Document,
    Fault,
    Faults,
    LoadManifest,
    MirrorTestRun,
    ProbeMeasurements,
    ProducerReports,
    Rehearsed,
    documents,
)
from headrace_spark.session import say


def write_manifest(run: MirrorTestRun, folder: Path, manifest: LoadManifest) -> None:
    _write(run, folder / documents.MANIFEST, documents.MANIFEST_KEY, manifest)


def write_failure(run: MirrorTestRun) -> None:
    """Report in the journal that the load ended without a manifest.

    The probe and the chaos job then stop waiting for the rest of the load. If the source does not
    respond, only a message is printed.
    """
    try:
        journal.write(run.source, run.name, documents.LOAD_FAILED_KEY, "{}")
    except HeadraceError as error:
        say(f"the probe was not informed that the load failed: {error}")


def write_measured(run: MirrorTestRun, folder: Path, measured: ProbeMeasurements) -> None:
    _write(run, folder / documents.MEASURED, documents.MEASURED_KEY, measured)


def measured(run: MirrorTestRun, folder: Path) -> ProbeMeasurements | None:
    """Return the probe's measurements, or None. Raise ``GaveUp`` if they are damaged."""
    return _found(run, ProbeMeasurements, folder / documents.MEASURED, documents.MEASURED_KEY)


def manifest(run: MirrorTestRun, folder: Path) -> LoadManifest:
    """Return the manifest of this run. Raise ``GaveUp`` if there is none, or if it is damaged."""
    path = folder / documents.MANIFEST
    found = _found(run, LoadManifest, path, documents.MANIFEST_KEY)
    if found is None or found.run != run.name:
        raise GaveUp(
            f"there is no manifest of run {run.name}, neither in {path} nor in "
            f"{journal.TOPIC} of {run.source.alias}: the load did not end in order, so it is "
            f"unknown which messages the target must have{how_far(run)}"
        )
    return found


def how_far(run: MirrorTestRun) -> str:
    """Return the number of acknowledged messages as the end of a sentence.

    The number is the sum of the producers' reports in the journal. Return an empty string if the
    journal cannot be read.
    """
    try:
        reports = journal.read_all(run.source, run.name)
    except HeadraceError:
        return ""
    acknowledged = ProducerReports()
    for key, value in reports.items():
        acknowledged.receive(key, value)
    return f" (the load came to {acknowledged.total:,} acknowledged messages)"


def faults(run: MirrorTestRun, folder: Path, plan: Path | None) -> tuple[Fault, ...]:
    """Return the outcome of each chaos step.

    If ``plan`` is given and the journal has no outcome, return the planned steps. Raise ``GaveUp``
    if the plan does not exist.
    """
    if plan is None:
        return (documents.read(folder / documents.FAULTS, Faults) or Faults()).faults
    if (planned := documents.read(plan, Faults)) is None:
        raise GaveUp(f"{plan} does not exist, so the planned faults are unknown")
    reported = journal.read(run.source, run.name, documents.FAULTS_KEY)
    return (Faults.model_validate(reported) if reported else planned).faults


def rehearsed(run: MirrorTestRun, folder: Path, plan: Path | None) -> Rehearsed | None:
    """Return the outcome of a rehearsal, or None if there was none.

    If ``plan`` is given and the journal has no outcome, return the plan. Raise ``GaveUp`` if the
    plan does not exist.
    """
    if plan is None:
        return documents.read(folder / documents.REHEARSAL, Rehearsed)
    if (planned := documents.read(plan, Rehearsed)) is None:
        raise GaveUp(f"{plan} does not exist, so the groups of the rehearsal are unknown")
    found = _reported(run, Rehearsed, documents.REHEARSAL_KEY) or planned
    return found.model_copy(update={"groups": ()}) if found.error else found


def _write(run: MirrorTestRun, path: Path, key: str, document: BaseModel) -> None:
    documents.write(path, document)
    journal.write(run.source, run.name, key, document.model_dump_json(by_alias=True))


def _found(run: MirrorTestRun, kind: type[Document], path: Path, key: str) -> Document | None:
    """Return the document of another job of this run, from its file or from the journal.

    Return None if neither has it. Raise ``GaveUp`` if the file is damaged and the journal has no
    copy, or if the journal's copy is damaged.
    """
    try:
        if (document := documents.read(path, kind)) is not None:
            return document
    except GaveUp as damaged:
        if (copy := _reported(run, kind, key)) is None:
            raise
        say(f"{damaged}; the copy in {journal.TOPIC} of {run.source.alias} is used")
        return copy
    return _reported(run, kind, key)


def _reported(run: MirrorTestRun, kind: type[Document], key: str) -> Document | None:
    """Return the document in the journal, or None. Raise ``GaveUp`` if it is damaged."""
    if (value := journal.read(run.source, run.name, key)) is None:
        return None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise GaveUp(
            f"{run.name}/{key} in {journal.TOPIC} of {run.source.alias} cannot be read: "
            f"{error.errors()[0]['msg']}"
        ) from error


_TIMEOUT_S = 120.0
"""Time in seconds for which a write is retried. It is enough for an API server's restart or
upgrade."""


def put(where: str, key: str, text: str) -> None:
    """Write ``text`` at ``key`` of the existing ConfigMap ``NAMESPACE/NAME``.

    Only the permission to patch this ConfigMap is required. Raises the errors of ``headrace.k8s``.
    """
    namespace, _, name = where.partition("/")
    asyncio.run(_put(namespace, name, key, text))


async def _put(namespace: str, name: str, key: str, text: str) -> None:
    # The extra `spark` lacks the Kubernetes client. Only the image has it.
    from headrace.k8s import CONFIG_MAP, connect, retried  # noqa: PLC0415

    client, patch = await connect("the verifier"), {"data": {key: text}}
    try:
        await retried(lambda: client.patch(CONFIG_MAP, namespace, name, patch), _TIMEOUT_S)
    finally:
        await client.close()
