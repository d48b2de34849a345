"""``headrace report``: the page of a mirror test that ran in a cluster."""

import asyncio
import webbrowser
from pathlib import Path

import click
from pydantic import ValidationError

from headrace.api import MirrorTest
from headrace.cli.mirror_test.summary import summary
from headrace.errors import GaveUp, InvalidSpec
from headrace.k8s import CONFIG_MAP, MIRROR_TEST, Client, connect_as_kubectl, owns, parse
from headrace.mirror_test import Result, documents
from headrace.report.page import page


@click.command()
@click.argument("test")
@click.option("-n", "--namespace", help="Of the test; by default the context's.")
@click.option("--context", help="Of the kubeconfig: which cluster.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write the page to this file, - for standard output, and open nothing. "
    "[default: headrace-reports/<test>/<run>/report.html]",
)
def command(test: str, namespace: str | None, context: str | None, output: Path | None) -> None:
    """Make the page of TEST's report and open it; of one with a schedule, of its last run.

    The report is a ConfigMap beside the test: the pods need not be there any more.
    """
    result = asyncio.run(_result(test, namespace, context))
    html = page(result)
    if output == Path("-"):
        click.echo(html)
        return
    path = output or Path("headrace-reports") / result.test.metadata.name / result.run
    if output is None:
        path /= "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    click.echo(summary(result, path))
    if output is None and not webbrowser.open(path.absolute().as_uri()):
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
