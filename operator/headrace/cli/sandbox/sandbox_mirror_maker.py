"""``headrace sandbox mirror-maker``: a MirrorMaker 2 that a mirror test can judge."""

import click

from headrace.cli.sandbox.sandbox_records import sandbox_meant, sandbox_option
from headrace.errors import InvalidSpec
from headrace.sandbox import start_mirror_maker


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of MirrorMaker 2. Repeatable.",
)
@sandbox_option
def mirror_maker(topics: tuple[str, ...], settings: tuple[str, ...], sandbox: str | None) -> None:
    """Start a real MirrorMaker 2 between the clusters of a sandbox.

    It copies TOPICs from the first cluster to the last, until `headrace sandbox down`. TOPIC is a
    regular expression that matches the whole name. On the target, a topic is called
    <cluster>.<topic>.

    Examples:
      headrace sandbox mirror-maker 'orders.*'
      headrace sandbox mirror-maker 'orders.*' --set tasks.max=4
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
