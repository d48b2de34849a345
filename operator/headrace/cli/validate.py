"""``headrace validate``: lists every mistake in manifests."""

from pathlib import Path

import click

from headrace.api import InvalidManifest, load
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import manifest_options
from headrace.standalone.manifests import refusals


@click.command
@manifest_options
def command(files: tuple[Path, ...]) -> Exit:
    """Check the manifests in FILE and list every mistake.

    A mistake is printed with its file, line and field, and the exit code is 3. Without a mistake, a
    line is printed for each object. `headrace run` accepts what this command accepts.

    Examples:
      headrace validate flow.yaml
      headrace validate -f flows/
      cat flow.yaml | headrace validate -f -
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
