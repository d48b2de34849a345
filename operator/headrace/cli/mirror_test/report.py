"""``headrace test report``: opens a mirror test's report, or verifies its signature."""

import webbrowser
from datetime import UTC, datetime
from pathlib import Path

import click

from headrace.cli.mirror_test.outputs import signing_module
from headrace.cli.mirror_test.progress import summary
from headrace.cli.screen.cluster_options import cluster_options
from headrace.cli.screen.output import show, show_document


@click.command()
@click.argument("test", metavar="TEST")
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
@click.option(
    "--verify-signature",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Verify with this public key (PEM) that the file TEST is a report and was not changed.",
)
def command(  # noqa: PLR0917 - click gives them by name
    test: str,
    namespace: str | None,
    context: str | None,
    output: str,
    file: Path | None,
    verify_signature: Path | None,
) -> None:
    """Open the report of TEST, or of the last run of a TEST with a schedule.

    The report is in a ConfigMap beside the test, so the pods of the test are not needed.

    With --verify-signature, TEST is a file report.json that `headrace verify --sign-key` has
    signed. The exit code is 1 if the file was changed, has no signature, or was signed with another
    key.

    Examples:
      headrace test report orders -n shop
      headrace test report orders -n shop --page report.html
      headrace test report orders -n shop -o json
      headrace test report --verify-signature public.pem report.json
    """
    if verify_signature is not None:
        _verify(Path(test), verify_signature)
        return
    # These modules need packages that a standalone installation lacks.
    from headrace.cli.mirror_test.cluster_tests import report_of  # noqa: PLC0415
    from headrace.report.pages import page  # noqa: PLC0415 - loads matplotlib

    result = report_of(test, namespace, context)
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
        click.echo("  no browser was found: open that file in a browser")


def _verify(path: Path, key: Path) -> None:
    """Print the time and key of a report's signature. Raise an error if it is not valid."""
    signing = signing_module()
    report, signature = signing.verify_report(path, signing.read_public_key(key))
    when = datetime.fromtimestamp(signature.signed_ms / 1000, UTC)
    name, run = report["test"]["metadata"]["name"], report["run"]
    click.echo(
        f"Verified: {path} is as it was signed at {when:%Y-%m-%d %H:%M:%S} UTC, with the key that "
        f"has the SHA-256 {signature.key_sha256}"
    )
    click.echo(f"  {report['verdict']}: run {run} of {name}")
