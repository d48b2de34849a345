"""``headrace validate``: says every mistake in manifests, and what is not built yet."""

from pathlib import Path

import click

from headrace.api import InvalidManifest, MirrorTest, ReplicationFlow, Resets, load, unbuilt
from headrace.cli.exits import Exit
from headrace.errors import InvalidSpec
from headrace.placement import check_assignor


@click.command
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(files: tuple[Path, ...]) -> Exit:
    """Check manifests: YAML FILES, or folders of them.

    Prints each mistake with its file, line and field, and ends with 3; or a line for each object,
    and what it asks for that this version does not do yet, and ends with 0.
    """
    try:
        manifest = load(files)
    except InvalidManifest as error:
        click.echo(error)
        return Exit.USAGE
    end = Exit.OK
    for found in manifest.objects:
        if isinstance(found, ReplicationFlow):
            try:
                check_assignor(found.spec.tasks.assignor)
                Resets.asked(found.metadata)
            except InvalidSpec as wrong:
                click.echo(f"{found.kind} {found.metadata.name}: {wrong}")
                end = Exit.USAGE
                continue
        click.echo(f"{found.kind} {found.metadata.name}: valid")
        if isinstance(found, ReplicationFlow | MirrorTest):
            parts = unbuilt(found)
            for sentence in parts.refused:
                click.echo(f"  refused by headrace run and verify: {sentence}")
            if parts.warning:
                click.echo(f"  warning: {parts.warning}")
    return end
