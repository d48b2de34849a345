"""``headrace test report``, and mirror tests of a Kubernetes namespace."""

import asyncio
import webbrowser
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import ValidationError

from headrace.api import END_LOAD_ANNOTATION, MirrorTest
from headrace.cli.mirror_test.progress import summary
from headrace.cli.screen.cluster_options import cluster_options
from headrace.cli.screen.output import show, show_document
from headrace.errors import GaveUp, InvalidSpec
from headrace.k8s import CONFIG_MAP, MIRROR_TEST, Client, connect_as_kubectl, owns, parse
from headrace.mirror_test import Result, documents
from headrace.report.pages import page


@click.command()
@click.argument("test")
@cluster_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["page", "yaml", "json", "name"]),
    metavar="FORMAT",
    default="page",
    show_default=True,
    help="Output format: page (HTML, in a browser), yaml, json or name.",
)
@click.option(
    "--page",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="File of the page, which is not opened then; - for standard output. "
    "[default: headrace-reports/<test>/<run>/report.html]",
)
def command(
    test: str, namespace: str | None, context: str | None, output: str, file: Path | None
) -> None:
    """Open the report of TEST, or of the last run of a TEST with a schedule.

    The report is in a ConfigMap beside the test, so the pods of the test are not needed.

    Examples:
      headrace test report orders -n shop
      headrace test report orders -n shop --page report.html
      headrace test report orders -n shop -o json
    """
    result = asyncio.run(_result(test, namespace, context))
    if output != "page":
        found = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        show(found, output, show_document, lambda _: [f"mirrortest/{result.test.metadata.name}"])
        return
    html = page(result)
    if file == Path("-"):
        click.echo(html)
        return
    path = file or Path("headrace-reports") / result.test.metadata.name / result.run
    if file is None:
        path /= "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    click.echo(summary(result, path))
    if file is None and not webbrowser.open(path.absolute().as_uri()):
        click.echo("  no browser was found here: open that file in one")


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
            f"ConfigMap {where} in namespace {namespace} holds no report that can be read: "
            "somebody removed or changed it, or another version of headrace made it"
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
    message = conditions[0].message if conditions else "it was not begun yet"
    how = "ended without a report" if status and status.verdict else "has no report yet"
    return f"MirrorTest {test.metadata.name} {how}: {message}"


def annotate_end(name: str, namespace: str | None, context: str | None) -> None:
    """Ask the operator to end the load of a test; ``InvalidSpec`` when there is none to end."""
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
            "keeps further ones from starting"
        )
    if test.status and test.status.verdict:
        raise InvalidSpec(f"{name} has ended: {test.status.verdict}")
    annotations = {END_LOAD_ANNOTATION: datetime.now(UTC).isoformat()}
    await client.patch(MIRROR_TEST, namespace, name, {"metadata": {"annotations": annotations}})
