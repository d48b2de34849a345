"""Mirror tests of a Kubernetes namespace: reads their reports and ends their loads."""

import asyncio
from datetime import UTC, datetime

from pydantic import ValidationError

from headrace.api import END_LOAD_ANNOTATION, MirrorTest
from headrace.errors import GaveUp, InvalidSpec
from headrace.k8s import CONFIG_MAP, MIRROR_TEST, Client, connect_as_kubectl, owns, parse
from headrace.mirror_test import Result, documents


def report_of(name: str, namespace: str | None, context: str | None) -> Result:
    """Return the report of a test, or of the last run of a test with a schedule."""
    return asyncio.run(_result(name, namespace, context))


async def _result(name: str, namespace: str | None, context: str | None) -> Result:
    client = await connect_as_kubectl("you", context)
    try:
        return await _read(client, namespace or client.namespace, name)
    finally:
        await client.close()


async def _read(client: Client, namespace: str, name: str) -> Result:
    found = await client.get(MIRROR_TEST, namespace, name)
    if found is None:
        raise InvalidSpec(f"there is no MirrorTest {name} in namespace {namespace}")
    test = parse(MirrorTest, found)
    if test.spec.repeats:
        test = await _last_run(client, test)
    where = test.status.report if test.status else None
    if where is None:
        raise GaveUp(_no_report(test))
    kept = await client.get(CONFIG_MAP, namespace, where)
    try:
        return Result.model_validate_json(((kept or {}).get("data") or {})[documents.REPORT])
    except (KeyError, ValidationError) as error:
        raise GaveUp(
            f"ConfigMap {where} in namespace {namespace} contains no readable report: "
            "it was removed or changed, or another version of headrace wrote it"
        ) from error


async def _last_run(client: Client, schedule: MirrorTest) -> MirrorTest:
    tests = await client.list(MIRROR_TEST, schedule.metadata.namespace)
    runs = [parse(MirrorTest, one) for one in tests if owns(schedule, one)]
    reported = [run for run in runs if run.status and run.status.report]
    if not reported:
        raise GaveUp(f"no run of {schedule.metadata.name} has a report yet")
    return max(reported, key=lambda run: (run.metadata.creation_timestamp, run.metadata.name))


def _no_report(test: MirrorTest) -> str:
    status = test.status
    conditions = status.conditions if status else ()
    message = conditions[0].message if conditions else "it has not started yet"
    how = "ended without a report" if status and status.verdict else "has no report yet"
    return f"MirrorTest {test.metadata.name} {how}: {message}"


def annotate_end(name: str, namespace: str | None, context: str | None) -> None:
    """Ask the operator to end the load of a test. Raise ``InvalidSpec`` if no load can be ended."""
    asyncio.run(_annotate_end(name, namespace, context))


async def _annotate_end(name: str, namespace: str | None, context: str | None) -> None:
    client = await connect_as_kubectl("you", context)
    try:
        await _annotate(client, namespace or client.namespace, name)
    finally:
        await client.close()


async def _annotate(client: Client, namespace: str, name: str) -> None:
    found = await client.get(MIRROR_TEST, namespace, name)
    if found is None:
        raise InvalidSpec(f"there is no MirrorTest {name} in namespace {namespace}")
    test = parse(MirrorTest, found)
    if test.spec.repeats:
        raise InvalidSpec(
            f"{name} sends nothing itself: name the run whose load is to end; spec.suspend: true "
            "prevents further runs"
        )
    if test.status and test.status.verdict:
        raise InvalidSpec(f"{name} has ended: {test.status.verdict}")
    annotations = {END_LOAD_ANNOTATION: datetime.now(UTC).isoformat()}
    await client.patch(MIRROR_TEST, namespace, name, {"metadata": {"annotations": annotations}})
