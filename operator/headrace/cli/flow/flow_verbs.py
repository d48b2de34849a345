"""``headrace flow pause``, ``resume`` and ``scale``, on this machine or in a cluster."""

import click

from headrace.cli.flow.flows import Answer, Flows, of_flows, the_only_one
from headrace.errors import InvalidSpec

flow_argument = click.argument("flow")
partitions_argument = click.argument("partitions", metavar="[TOPIC[/PARTITIONS]]", required=False)


@click.command()
@flow_argument
@partitions_argument
@click.option("--stop", is_flag=True, help="End of the tasks as well (spec.state: Stopped).")
@of_flows
def pause(flows: Flows, flow: str, partitions: str | None, stop: bool) -> None:
    """Pause FLOW, or the partitions TOPIC[/PARTITIONS] of it.

    Tasks of a paused flow keep their positions and connections. Paused partitions are listed in
    spec.pausedPartitions; the others are copied.

    Examples:
      headrace flow pause orders
      headrace flow pause orders --stop
      headrace flow pause orders payments/0-3,7
      headrace flow pause orders -n shop
    """
    if partitions is None:
        state = "stopped" if stop else "paused"
        answer = flows.request(flow, "set-state", state=state.capitalize())
        if not _unchanged(answer, f"{flow} is {state}"):
            click.echo(f"{flow} is {state} until `headrace flow resume`.")
        return
    if stop:
        raise InvalidSpec("--stop is for a whole flow: leave out --stop or the partitions")
    answer = flows.request(flow, "pause-partitions", partitions=partitions, paused=True)
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
        answer = flows.request(flow, "set-state", state="Running")
        if _unchanged(answer, f"{flow} runs"):
            if paused := ", ".join(answer["paused"]):
                click.echo(f"Still paused: {paused}. Name them to resume them.")
            return
        click.echo(f"{flow} resumes.")
    else:
        answer = flows.request(flow, "pause-partitions", partitions=partitions, paused=False)
        click.echo(f"{partitions} of {flow} resumes.")
    if answer["paused"]:
        click.echo(f"Still paused, by spec.pausedPartitions: {', '.join(answer['paused'])}.")
    if answer["state"] != "Running":
        click.echo(f"But spec.state is {answer['state']}: `headrace flow resume {flow}` ends that.")


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
    answer = flows.request(flow or the_only_one(flows), "scale", drivers=drivers)
    if answer["before"] == drivers:
        click.echo(f"There are {drivers} drivers already: nothing is changed.")
    else:
        click.echo(f"{answer['before']} -> {drivers} drivers.")


def _unchanged(answer: Answer, state: str) -> bool:
    """Return whether a verb changed nothing, and say so."""
    if answer["changed"]:
        return False
    click.echo(f"{state} already: nothing is changed.")
    return True
