"""``headrace sandbox``: real Kafka clusters on this machine, and records into and out of them."""

import re

import click
from rich.table import Table

from headrace import logs
from headrace.cli.sandbox.sandbox_faults import freeze, thaw
from headrace.cli.sandbox.sandbox_flow import flow
from headrace.cli.sandbox.sandbox_mirror_maker import mirror_maker
from headrace.cli.sandbox.sandbox_records import consume, produce
from headrace.cli.screen.output import unfolded
from headrace.cli.screen.own_command import own_command
from headrace.errors import InvalidSpec
from headrace.sandbox import USERNAME, Broker, Cluster, ClusterPlan, Sandbox

DEFAULT_CLUSTERS = ("east", "west")


@click.group(name="sandbox", short_help="real Kafka clusters on this machine")
def command() -> None:
    """Real Kafka clusters on this machine: every broker is a process of its own on 127.0.0.1."""
    logs.configure()


@command.command()
@click.argument("clusters", nargs=-1, metavar="[CLUSTER[:BROKERS]]...")
@click.option("--brokers", type=int, default=1, show_default=True, help="Brokers of each cluster.")
@click.option(
    "--port", type=int, help="The first broker's port; the others follow. Free ones else."
)
@click.option("--heap-mb", type=int, default=256, show_default=True, help="Heap of each broker.")
@click.option(
    "--secure",
    is_flag=True,
    help="Also listeners with TLS: one for passwords, one for client certificates.",
)
@click.option("--sandbox", default="default", show_default=True, help="Its name.")
def up(  # noqa: PLR0917 - click gives them by name
    clusters: tuple[str, ...],
    brokers: int,
    port: int | None,
    heap_mb: int,
    secure: bool,
    sandbox: str,
) -> None:
    """Start clusters that stay until `headrace sandbox down`: east and west, or the named ones.

    `headrace sandbox up east west:3` gives west three brokers.
    """
    plans = []
    for text in clusters or DEFAULT_CLUSTERS:
        cluster, _, number = text.partition(":")
        if number and not re.fullmatch(r"[0-9]+", number):
            raise InvalidSpec(f"{text!r}: after the ':' goes the number of brokers, as in west:3")
        plan = ClusterPlan(cluster, int(number or brokers), port, heap_mb, secure=secure)
        port = port + plan.brokers if port is not None else None
        plans.append(plan)
    total = sum(plan.brokers for plan in plans)
    click.echo(f"Starting {_count(total, 'broker')} of Apache Kafka ...", err=True)
    _show(Sandbox.start(sandbox, plans, detached=True))


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(names: tuple[str, ...]) -> None:
    """Show all sandboxes, or the named ones: addresses, brokers, logs."""
    sandboxes = [Sandbox.open(name) for name in names] or Sandbox.all()
    for sandbox in sandboxes:
        _show(sandbox)
    if not sandboxes:
        click.echo("There is no sandbox. `headrace sandbox up` starts one.")


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
def down(names: tuple[str, ...]) -> None:
    """End sandboxes and delete their data: all that were left running, or the named ones."""
    sandboxes = [Sandbox.open(name) for name in names] or Sandbox.all()
    for sandbox in sandboxes:
        if not names and sandbox.running and not sandbox.detached:
            click.echo(
                f"Sandbox {sandbox.name} belongs to a command that runs, and ends with it. "
                f"`headrace sandbox down {sandbox.name}` ends it now."
            )
            continue
        if sandbox.running:
            brokers = sum(len(_running(cluster)) for cluster in sandbox.clusters)
            ended = [*(each.label for each in sandbox.companions), _count(brokers, "broker")]
            outcome = f"is down: {', '.join(ended)} ended, data deleted."
        else:
            outcome = "was down; what was left of it is deleted."
        sandbox.close()
        click.echo(f"Sandbox {sandbox.name} {outcome}")
    if not sandboxes:
        click.echo("There is no sandbox to end.")


command.add_command(flow)
command.add_command(mirror_maker, "mirror-maker")
command.add_command(produce)
command.add_command(consume)
command.add_command(freeze)
command.add_command(thaw)


def _show(sandbox: Sandbox) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("CLUSTER", "BOOTSTRAP SERVERS", "BROKERS"):
        table.add_column(column, no_wrap=True)
    for cluster in sandbox.clusters:
        table.add_row(cluster.name, cluster.bootstrap_servers, _brokers(cluster))
    console = unfolded()
    console.print(f"Sandbox [bold]{sandbox.name}[/]", table, sep="\n")
    for companion in sandbox.companions:
        console.print(f"With it runs {companion.label} (process {companion.pid}).")
    if any(cluster.sasl_servers for cluster in sandbox.clusters):
        console.print(_secure(sandbox), soft_wrap=True)
    console.print(f"Logs: {sandbox.folder}/<cluster>/broker-<n>/broker.log", soft_wrap=True)
    if sandbox.running:
        console.print(f"Stop: {own_command()} sandbox down {sandbox.name}", soft_wrap=True)


def _secure(sandbox: Sandbox) -> Table:
    """Where clients get in over TLS, and with what."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("CLUSTER", "SASL OVER TLS", "CLIENT CERTIFICATE"):
        table.add_column(column, no_wrap=True)
    for cluster in sandbox.clusters:
        if cluster.sasl_servers:
            table.add_row(cluster.name, cluster.sasl_servers, cluster.tls_servers)
    table.caption = (
        f"User {USERNAME}; Secrets <cluster>-ca, -client and -user: --secrets {sandbox.secrets}"
    )
    return table


def _brokers(cluster: Cluster) -> str:
    running = _running(cluster)
    down = [str(broker.node_id) for broker in cluster.brokers if broker not in running]
    frozen = [str(broker.node_id) for broker in running if broker.frozen]
    others = [("down", down), ("frozen", frozen)]
    return ", ".join(
        [f"{len(running)} up", *(f"{state}: {', '.join(them)}" for state, them in others if them)]
    )


def _running(cluster: Cluster) -> list[Broker]:
    return [broker for broker in cluster.brokers if broker.process]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
