"""``headrace validate``: says every mistake in manifests."""

from pathlib import Path

import click

from headrace.api import InvalidManifest, load
from headrace.cli.screen.exits import Exit
from headrace.standalone.refusals import refusals


@click.command
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(files: tuple[Path, ...]) -> Exit:
    """Check manifests: YAML FILES, or folders of them.

    Prints each mistake with its file, line and field, and ends with 3; or a line for each object,
    and ends with 0. What it accepts, `headrace run` accepts.
    """
    try:
        manifest = load(files)
    except InvalidManifest as error:
        click.echo(error)
        return Exit.USAGE
    if mistakes := refusals(manifest):
        for mistake in mistakes:
            click.echo(mistake)
        return Exit.USAGE
    for found in manifest.objects:
        click.echo(f"{found.kind} {found.metadata.name}: valid")
    return Exit.OK
