"""``headrace end-load``: a mirror test sends no more, and what it sent is judged."""

from pathlib import Path

import click

from headrace.errors import InvalidSpec
from headrace.mirror_test import documents


@click.command()
@click.argument("test")
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run's report. [default: the latest in headrace-reports/<test>]",
)
@click.option("-n", "--namespace", help="Of a test in a cluster, not on this machine.")
@click.option("--context", help="Of the kubeconfig: which cluster.")
@click.pass_context
def command(
    ctx: click.Context,
    test: str,
    report: Path | None,
    namespace: str | None,
    context: str | None,
) -> None:
    """End the load of TEST, which runs here or in a cluster; its verdict is about what was sent.

    The spec stays as it is: the report says that the load was ended early.
    """
    if namespace or context or ctx.find_root().info_name == "kubectl headrace":
        # Not installed where tests run on one machine only.
        from headrace.cli.mirror_test.cluster_tests import annotate_end  # noqa: PLC0415

        annotate_end(test, namespace, context)
    else:
        (report or _latest(test)).joinpath(documents.END_LOAD).touch()
    click.echo(f"{test} sends no more; the verdict follows.")


def _latest(test: str) -> Path:
    """The folder of a run that has no report yet."""
    folder = Path("headrace-reports") / test
    runs = [
        path.parent
        for path in folder.glob(f"*/{documents.TEST}")
        if not path.with_name(documents.REPORT).exists()
    ]
    if not runs:
        raise InvalidSpec(
            f"no run of {test} is under way in {folder}: name its folder with --report, or the "
            "namespace of a test in a cluster (-n)"
        )
    return max(runs, key=lambda path: path.stat().st_mtime)
