"""``headrace sandbox``: runs real Kafka clusters on this machine."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from rich.table import Table

from headrace import logs
from headrace.cli.sandbox_records import (
    consume,
    produce,
    sandbox_meant,
    sandbox_option,
    selected_clusters,
)
from headrace.cli.screen.options import confirm, own_command, yes_option
from headrace.cli.screen.output import output_option, unfolded, watch_and_show, watch_option
from headrace.errors import InvalidSpec
from headrace.sandbox import (
    USERNAME,
    BrokerProcess,
    ClusterPlan,
    Sandbox,
    SandboxCluster,
    start_mirror_maker,
)

brokers_argument = click.argument("brokers", metavar="CLUSTER[:BROKER]")


@click.group(short_help="Freeze and thaw brokers.")
def broker() -> None:
    """Freeze and thaw the brokers of a sandbox."""


@broker.command(short_help="Freeze brokers.")
@brokers_argument
@sandbox_option
def freeze(brokers: str, sandbox: str | None) -> None:
    """Freeze a broker, or all brokers of a cluster, until `thaw`.

    A frozen broker keeps its connections and does not respond, like a machine that hangs.

    Examples:
      headrace sandbox broker freeze west:1
      headrace sandbox broker freeze west
    """
    for one in _chosen_brokers(brokers, sandbox):
        if one.process is None:
            raise InvalidSpec(f"{one} does not run, so it cannot be frozen")
        one.freeze()
        click.echo(f"{one} is frozen until `headrace sandbox broker thaw {brokers}`.")


@broker.command(short_help="Let frozen brokers continue.")
@brokers_argument
@sandbox_option
def thaw(brokers: str, sandbox: str | None) -> None:
    """Let a frozen broker, or all brokers of a cluster, continue.

    Examples:
      headrace sandbox broker thaw west:1
      headrace sandbox broker thaw west
    """
    for one in _chosen_brokers(brokers, sandbox):
        one.thaw()
        click.echo(f"{one} continues.")


def _chosen_brokers(text: str, sandbox: str | None) -> tuple[BrokerProcess, ...]:
    name, colon, number = text.partition(":")
    cluster = selected_clusters(sandbox, name)[0]
    if not colon:
        return cluster.brokers
    if not (number.isascii() and number.isdigit()):
        raise InvalidSpec(f"{text!r}: after the ':' goes a broker's number, as in west:1")
    return (cluster.broker(int(number)),)


_Json = dict[str, Any]


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--name", default="my-flow", show_default=True, metavar="FLOW", help="Name of the flow."
)
@sandbox_option
def flow(topics: tuple[str, ...], name: str, sandbox: str | None) -> None:
    """Print a flow that copies TOPICs from the first cluster of a sandbox to the last.

    TOPIC is a regular expression that matches the whole name. If the clusters have TLS and
    passwords, the manifest uses them and contains the Secrets.

    Examples:
      headrace sandbox flow 'orders.*' > flow.yaml
      headrace sandbox flow orders payments --name shop | headrace run -f -
    """
    meant = sandbox_meant(sandbox)
    document = flow_document(meant, topics, name)
    secrets = [secret for at in _ends(meant) for secret in _secrets(at, meant.secrets)]
    documents = [document, *secrets]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


def flow_document(sandbox: Sandbox, topics: Sequence[str], name: str) -> _Json:
    """Return a flow from the first to the last cluster of the sandbox.

    Raise ``InvalidSpec`` if the sandbox has only one cluster.
    """
    source, target = _ends(sandbox)
    if source.name == target.name:
        raise InvalidSpec("a flow needs two clusters, and this sandbox has one")
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {
            "source": cluster_document(source),
            "target": cluster_document(target),
            "topics": {"include": list(topics)},
        },
    }


def _ends(sandbox: Sandbox) -> tuple[SandboxCluster, SandboxCluster]:
    return sandbox.clusters[0], sandbox.clusters[-1]


def cluster_document(cluster: SandboxCluster) -> _Json:
    """Return the cluster for a manifest, with TLS and a password if the sandbox has them."""
    if not cluster.sasl_servers:
        return {"alias": cluster.name, "bootstrapServers": cluster.bootstrap_servers}
    return {
        "alias": cluster.name,
        "bootstrapServers": cluster.sasl_servers,
        "tls": {"trustedCertificates": [{"secretName": f"{cluster.name}-ca", "key": "ca.crt"}]},
        "authentication": {
            "type": "ScramSha512",
            "username": USERNAME,
            "password": {"secretName": f"{cluster.name}-user", "key": "password"},
        },
    }


def _secrets(cluster: SandboxCluster, folder: Path) -> list[_Json]:
    if not cluster.sasl_servers:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {key: (folder / name / key).read_text()},
        }
        for name, key in ((f"{cluster.name}-ca", "ca.crt"), (f"{cluster.name}-user", "password"))
    ]


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
            f"sandbox {meant.name} ends with the command that started it: start another sandbox "
            "with `headrace sandbox up`"
        )
    process, log = start_mirror_maker(meant, source, target, ",".join(topics), more)
    click.echo(
        f"MirrorMaker 2 (process {process.pid}) copies {', '.join(topics)} from {source.name} to "
        f"{target.name}, where a topic is called {source.name}.<topic>. It needs some seconds to "
        f"begin, and ends with the sandbox.\nLog: {log}"
    )


DEFAULT_CLUSTERS = ("east", "west")


@click.group(name="sandbox", short_help="Run real Kafka clusters on this machine.")
def command() -> None:
    """Run real Kafka clusters on this machine.

    Every broker is a separate process on 127.0.0.1.
    """
    logs.configure()


@command.command(short_help="Start clusters.")
@click.argument("clusters", nargs=-1, metavar="[CLUSTER[:BROKERS]]...")
@click.option(
    "--brokers",
    type=int,
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="Number of brokers of each cluster.",
)
@click.option(
    "--port",
    type=int,
    metavar="PORT",
    help="Port of the first broker; the others get the next ones. [default: free ports]",
)
@click.option(
    "--heap-mb",
    type=int,
    default=256,
    show_default=True,
    metavar="MEGABYTES",
    help="Heap of each broker, in MB.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Additional TLS listeners: one for passwords, one for client certificates.",
)
@click.option(
    "--sandbox",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Name of the sandbox.",
)
def up(  # noqa: PLR0917 - click gives them by name
    clusters: tuple[str, ...],
    brokers: int,
    port: int | None,
    heap_mb: int,
    secure: bool,
    sandbox: str,
) -> None:
    """Start clusters that run until `headrace sandbox down`.

    CLUSTER is the name of a cluster, by default east and west. BROKERS is its number of brokers.

    Examples:
      headrace sandbox up
      headrace sandbox up east west:3 --secure
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


@command.command(short_help="Show sandboxes.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@watch_option
def status(names: tuple[str, ...], output: str, watch: bool) -> None:
    """Show all sandboxes, or those with these NAMEs: addresses, brokers and logs.

    Examples:
      headrace sandbox status
      headrace sandbox status demo -o json
    """
    watch_and_show(
        lambda: [_document(sandbox) for sandbox in _chosen(names)],
        output,
        lambda _, *, wide=False: _show_all(_chosen(names)),
        lambda documents: [f"sandbox/{one['name']}" for one in documents],
        watch=watch,
    )


def _chosen(names: Sequence[str]) -> list[Sandbox]:
    return [Sandbox.open(name) for name in names] or list(Sandbox.all())


def _document(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "name": sandbox.name,
        "running": sandbox.running,
        "folder": str(sandbox.folder),
        "clusters": [
            {
                "name": cluster.name,
                "bootstrapServers": cluster.bootstrap_servers,
                **({"saslServers": cluster.sasl_servers} if cluster.sasl_servers else {}),
                **({"tlsServers": cluster.tls_servers} if cluster.sasl_servers else {}),
                "brokers": [{"id": one.node_id, "state": _state(one)} for one in cluster.brokers],
            }
            for cluster in sandbox.clusters
        ],
        "companions": [{"name": one.label, "pid": one.pid} for one in sandbox.companions],
    }


def _state(one: BrokerProcess) -> str:
    return "Down" if one.process is None else "Frozen" if one.frozen else "Running"


def _show_all(sandboxes: Sequence[Sandbox]) -> None:
    for sandbox in sandboxes:
        _show(sandbox)
    if not sandboxes:
        click.echo("There is no sandbox. `headrace sandbox up` starts one.")


@command.command(short_help="End sandboxes and delete their data.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@yes_option
def down(names: tuple[str, ...], yes: bool) -> None:
    """End all sandboxes, or those with these NAMEs, and delete their data.

    Without a NAME, the command asks on a terminal before it deletes anything. A sandbox that
    belongs to a running command is ended only if it is named.

    Examples:
      headrace sandbox down
      headrace sandbox down demo
      headrace sandbox down --yes
    """
    sandboxes = _chosen(names)
    doomed = [one for one in sandboxes if one.detached or not one.running]
    if doomed and not names and sys.stdin.isatty():
        what = ", ".join(f"{one.name} ({one.folder})" for one in doomed)
        confirm(f"Delete the sandboxes {what}", yes=yes)
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
            outcome = f"is down: {', '.join(ended)} ended, {sandbox.folder} deleted."
        else:
            outcome = f"was down; {sandbox.folder} is deleted."
        sandbox.close()
        click.echo(f"Sandbox {sandbox.name} {outcome}")
    if not sandboxes:
        click.echo("There is no sandbox to end.")


command.add_command(flow, "flow")
command.add_command(mirror_maker, "mirror-maker")
command.add_command(produce)
command.add_command(consume)
command.add_command(broker)


def _show(sandbox: Sandbox) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("CLUSTER", "BOOTSTRAP SERVERS", "BROKERS"):
        table.add_column(column, no_wrap=True)
    for cluster in sandbox.clusters:
        table.add_row(cluster.name, cluster.bootstrap_servers, _brokers(cluster))
    console = unfolded()
    console.print(f"Sandbox [bold]{sandbox.name}[/]", table, sep="\n")
    for companion in sandbox.companions:
        console.print(f"Also running: {companion.label} (process {companion.pid}).")
    if any(cluster.sasl_servers for cluster in sandbox.clusters):
        console.print(_secure(sandbox), soft_wrap=True)
    console.print(f"Logs: {sandbox.folder}/<cluster>/broker-<n>/broker.log", soft_wrap=True)
    if sandbox.running:
        console.print(f"Stop: {own_command()} sandbox down {sandbox.name}", soft_wrap=True)


def _secure(sandbox: Sandbox) -> Table:
    """Return a table of the TLS listeners, with the user and the Secrets for them."""
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


def _brokers(cluster: SandboxCluster) -> str:
    running = _running(cluster)
    down = [str(broker.node_id) for broker in cluster.brokers if broker not in running]
    frozen = [str(broker.node_id) for broker in running if broker.frozen]
    others = [("down", down), ("frozen", frozen)]
    return ", ".join(
        [f"{len(running)} up", *(f"{state}: {', '.join(them)}" for state, them in others if them)]
    )


def _running(cluster: SandboxCluster) -> list[BrokerProcess]:
    return [broker for broker in cluster.brokers if broker.process]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
