"""``headrace flow pause``, ``resume``, ``scale`` and ``dashboard``."""

import platform
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import click

from headrace.cli.screen.cluster_options import cluster_options, is_plug_in
from headrace.control import control
from headrace.errors import InvalidSpec, NotRunning

Answer = dict[str, Any]
Result = TypeVar("Result")


class Flows(Protocol):
    """Interface to the flows of this machine or of a cluster."""

    def names(self) -> list[str]:
        """Return the names of all flows. Raise ``NotRunning`` if there is none."""
        ...

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """Send a request to a flow. The verbs are those of ``standalone/control_handlers.py``."""
        ...

    def statuses(self, flow: str | None) -> list[Answer]:
        """Return name and status, including ``units``, of one flow or of all flows."""
        ...


class LocalFlows:
    """Flows of the ``headrace run`` processes on this machine."""

    def names(self) -> list[str]:
        flows = control.running_flows()
        if not flows:
            raise NotRunning(
                "no flow runs on this machine: start one with `headrace run FILE`. For the flows "
                "of a cluster, name the namespace (-n)"
            )
        return flows

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """Send a request over the control socket of a flow."""
        return control.request(flow, verb, **arguments)

    def statuses(self, flow: str | None) -> list[Answer]:
        names = [flow] if flow else self.names()
        return [
            {"metadata": {"name": name}, "status": self.request(name, "status")} for name in names
        ]


@contextmanager
def open_flows(
    namespace: str | None, context: str | None, *, in_cluster: bool, everywhere: bool = False
) -> Iterator[Flows]:
    """Open the flows of a cluster or of this machine.

    A cluster is opened if the options name one, or if ``in_cluster`` is True.
    """
    if not (namespace or context or in_cluster or everywhere):
        yield LocalFlows()
        return
    # This module needs packages that a standalone installation lacks.
    from headrace.cli.flow.cluster_flows import open_cluster  # noqa: PLC0415

    with open_cluster(namespace, context, everywhere=everywhere) as flows:
        yield flows


def of_flows(command: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a command with the options that name a cluster, and pass it the ``Flows``."""

    @cluster_options
    @click.pass_context
    def with_flows(
        ctx: click.Context, /, namespace: str | None, context: str | None, **arguments: Any
    ) -> Result:
        with open_flows(namespace, context, in_cluster=is_plug_in(ctx)) as flows:
            return command(flows, **arguments)

    return update_wrapper(with_flows, command)


def of_all_flows(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command as ``of_flows`` does, and add the option ``-A`` for all namespaces."""

    @cluster_options
    @click.option(
        "-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces of a cluster."
    )
    @click.pass_context
    def with_flows(
        ctx: click.Context,
        /,
        namespace: str | None,
        context: str | None,
        everywhere: bool,
        **arguments: Any,
    ) -> None:
        if namespace and everywhere:
            raise click.UsageError("give one of --namespace NAMESPACE and --all-namespaces", ctx)
        with open_flows(
            namespace, context, in_cluster=is_plug_in(ctx), everywhere=everywhere
        ) as flows:
            command(flows, **arguments)

    return update_wrapper(with_flows, command)


def single_flow(flows: Flows) -> str:
    """Return the name of the only flow. Raise ``InvalidSpec`` if there are several."""
    names = flows.names()
    if len(names) > 1:
        raise InvalidSpec(f"there are several flows ({', '.join(names)}): name one of them")
    return names[0]


flow_argument = click.argument("flow")
partitions_argument = click.argument("partitions", metavar="[TOPIC[/PARTITIONS]]", required=False)


@click.command()
@flow_argument
@partitions_argument
@click.option("--stop", is_flag=True, help="End of the tasks as well (spec.state: Stopped).")
@of_flows
def pause(flows: Flows, flow: str, partitions: str | None, stop: bool) -> None:
    """Pause FLOW, or the partitions TOPIC[/PARTITIONS] of it.

    Tasks of a paused flow keep their offsets and connections. Paused partitions are listed in
    spec.pausedPartitions; the others are copied.

    Examples:
      headrace flow pause orders
      headrace flow pause orders --stop
      headrace flow pause orders payments/0-3,7
      headrace flow pause orders -n shop
    """
    if partitions is None:
        state = "stopped" if stop else "paused"
        answer = check_in_force(flow, flows.request(flow, "set-state", state=state.capitalize()))
        if not _unchanged(answer, f"{flow} is {state}"):
            click.echo(f"{flow} is {state} until `headrace flow resume`.")
        return
    if stop:
        raise InvalidSpec("--stop is for a whole flow: leave out --stop or the partitions")
    answer = flows.request(flow, "pause-partitions", partitions=partitions, paused=True)
    check_in_force(flow, answer)
    if not _unchanged(answer, f"{partitions} of {flow} is paused"):
        click.echo(
            f"{partitions} of {flow} is paused until `headrace flow resume`: {answer['meant']} of "
            "its partitions now."
        )


@click.command()
@flow_argument
@partitions_argument
@of_flows
def resume(flows: Flows, flow: str, partitions: str | None) -> None:
    """Resume the paused or stopped FLOW, or the partitions TOPIC[/PARTITIONS] of it.

    Examples:
      headrace flow resume orders
      headrace flow resume orders payments/0-3
      headrace flow resume orders -n shop
    """
    if partitions is None:
        answer = check_in_force(flow, flows.request(flow, "set-state", state="Running"))
        if _unchanged(answer, f"{flow} runs"):
            if paused := ", ".join(answer["paused"]):
                click.echo(f"Still paused: {paused}. Name them to resume them.")
            return
        click.echo(f"{flow} resumes.")
    else:
        answer = flows.request(flow, "pause-partitions", partitions=partitions, paused=False)
        check_in_force(flow, answer)
        click.echo(f"{partitions} of {flow} resumes.")
    if answer["paused"]:
        click.echo(f"Still paused, by spec.pausedPartitions: {', '.join(answer['paused'])}.")
    if answer["state"] != "Running":
        click.echo(f"But spec.state is {answer['state']}: run `headrace flow resume {flow}`.")


@click.command()
@click.argument("drivers", type=click.IntRange(min=0))
@click.argument("flow", required=False)
@of_flows
def scale(flows: Flows, drivers: int, flow: str | None) -> None:
    """Change the number of drivers of FLOW to DRIVERS.

    FLOW can be left out if there is only one flow. On one machine, the flows of a run share its
    drivers. Only the tasks that must move are moved. With 0 drivers, nothing is copied.

    Examples:
      headrace flow scale 4
      headrace flow scale 4 orders -n shop
    """
    name = flow or single_flow(flows)
    answer = check_in_force(name, flows.request(name, "scale", drivers=drivers))
    if answer["before"] == drivers:
        click.echo(f"There are {drivers} drivers already: nothing is changed.")
    else:
        click.echo(f"{answer['before']} -> {drivers} drivers.")


def check_in_force(flow: str, answer: Answer) -> Answer:
    """Return the answer to a change of a flow's spec.

    Raise ``InvalidSpec`` if the change has no effect, because another field of the spec is invalid.
    """
    if why := answer.get("notInForce"):
        raise InvalidSpec(
            f"the change is stored, but has no effect until the spec of {flow} is corrected: {why}"
        )
    return answer


def _unchanged(answer: Answer, state: str) -> bool:
    """Return True and print a message if a verb changed nothing."""
    if answer["changed"]:
        return False
    click.echo(f"{state} already: nothing is changed.")
    return True


@click.command()
@click.argument("flow", required=False)
def command(flow: str | None) -> None:
    """Open the dashboard of the run of FLOW, or of each run.

    The dashboard shows the last hour of all flows of a run. The run must have been started with
    --metrics-port. For a longer time, let Prometheus scrape its /metrics.

    Examples:
      headrace flow dashboard
      headrace flow dashboard orders
    """
    flows = LocalFlows()
    names = [flow] if flow else flows.names()
    for url in dict.fromkeys(flows.request(name, "dashboard")["url"] for name in names):
        click.echo(url)
        if not webbrowser.open(url):
            click.echo(_by_hand(url))


def _by_hand(url: str) -> str:
    where = urlsplit(url)
    return (
        "No browser was found: open that address in a browser. On another machine, first run "
        f"`ssh -L {where.port}:{where.hostname}:{where.port} {platform.node()}`."
    )
