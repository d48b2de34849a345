"""``headrace sandbox mirror-maker``: another mirror, to judge it by a mirror test."""

import click

from headrace.cli.sandbox.sandbox_records import sandbox_meant, sandbox_option
from headrace.errors import InvalidSpec
from headrace.sandbox import start_mirror_maker


@click.command()
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A further setting of MirrorMaker 2; may be repeated.",
)
@sandbox_option
def mirror_maker(topics: tuple[str, ...], settings: tuple[str, ...], sandbox: str | None) -> None:
    """Start a real MirrorMaker 2 that copies TOPICS from the first cluster of a sandbox to the
    last, until `headrace sandbox down`.

    TOPICS are regular expressions that match whole names. On the target a topic is called
    <cluster>.<topic>.
    """
    more = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidSpec(f"--set {text}: must be KEY=VALUE")
        more[key] = value
    meant = sandbox_meant(sandbox)
    source, target = meant.clusters[0], meant.clusters[-1]
    if source.name == target.name:
        raise InvalidSpec("a mirror needs two clusters, and this sandbox has one")
    if not meant.detached:
        raise InvalidSpec(
            f"sandbox {meant.name} ends with the command that started it: start one of your own "
            "by `headrace sandbox up`"
        )
    process, log = start_mirror_maker(meant, source, target, ",".join(topics), more)
    click.echo(
        f"MirrorMaker 2 (process {process.pid}) copies {', '.join(topics)} from {source.name} to "
        f"{target.name}, where a topic is called {source.name}.<topic>. It needs some seconds to "
        f"begin, and ends with the sandbox.\nLog: {log}"
    )
