"""``headrace test end-load``: ends the load of a mirror test early."""

from pathlib import Path

import click

from headrace.cli.screen.cluster_options import cluster_options, is_plug_in
from headrace.errors import NotRunning
from headrace.mirror_test import documents


@click.command()
@click.argument("test")
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the report, or of the windows. [default: headrace-reports/<test>]",
)
@cluster_options
@click.pass_context
def command(
    ctx: click.Context,
    test: str,
    report: Path | None,
    namespace: str | None,
    context: str | None,
) -> None:
    """End the load of TEST, which runs in this folder or in a cluster.

    The messages that were sent are judged. The report says that the load was ended early. The spec
    of the test does not change.

    Examples:
      headrace test end-load orders
      headrace test end-load orders --report reports/today
      headrace test end-load orders -n shop
    """
    if namespace or context or is_plug_in(ctx):
        # This module needs packages that a standalone installation lacks.
        from headrace.cli.mirror_test.cluster_tests import annotate_end  # noqa: PLC0415

        annotate_end(test, namespace, context)
    else:
        folder = _under_way(test, report or Path("headrace-reports") / test)
        folder.joinpath(documents.END_LOAD).touch()
    click.echo(f"{test} sends no further messages; the verdict follows.")


def _under_way(test: str, folder: Path) -> Path:
    """Return the folder of the run in ``folder``, or of the latest run below it, without a report.

    A run reads the request only in its own folder. Raise ``NotRunning`` if there is none.
    """
    runs = [
        path.parent
        for pattern in (documents.TEST, f"*/{documents.TEST}")
        for path in folder.glob(pattern)
        if not path.with_name(documents.REPORT).exists()
    ]
    if not runs:
        raise NotRunning(
            f"no run of {test} is under way in {folder}: name its folder with --report, or the "
            "namespace of a test in a cluster (-n)"
        )
    return max(runs, key=lambda path: path.stat().st_mtime)
