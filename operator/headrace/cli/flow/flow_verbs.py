"""Commands about flows that run, here or in a cluster: ``headrace tasks``, ``restart`` ..."""

import click
import yaml

from headrace.cli.flow.flows import Answer, Flows, of_flows, the_only_one
from headrace.cli.screen.output import output_option, show
from headrace.cli.screen.tables import show_flows, show_tasks
from headrace.errors import InvalidSpec

flow_argument = click.argument("flow", required=False)
task_argument = click.argument("task")
partitions_argument = click.argument("partitions", metavar="[TOPIC[/PARTITIONS]]", required=False)


@click.command()
@flow_argument
@output_option
@of_flows
def status(flows: Flows, flow: str | None, output: str | None) -> None:
    """Show how FLOW is, or all flows that there are.

    With -o, the fields are those of a ReplicationFlow's status; `units` lists connectors and tasks.
    """
    documents = [
        {"metadata": {"name": name}, "status": flows.request(name, "status")}
        for name in ([flow] if flow else flows.names())
    ]
    show(documents, output, show_flows)


@click.command()
@flow_argument
@of_flows
def tasks(flows: Flows, flow: str | None) -> None:
    """List the connectors and tasks of FLOW, or of all flows that there are."""
    names = [flow] if flow else flows.names()
    show_tasks(unit for name in names for unit in flows.request(name, "status")["units"])


@click.command()
@task_argument
@of_flows
def describe(flows: Flows, task: str) -> None:
    """Print everything that is known of TASK, as YAML."""
    click.echo(
        yaml.safe_dump(flows.request(_flow_of(flows, task), "describe", task=task), sort_keys=False)
    )


@click.command()
@task_argument
@of_flows
def restart(flows: Flows, task: str) -> None:
    """Restart TASK on its driver, failed or not."""
    answer = flows.request(_flow_of(flows, task), "restart", task=task)
    click.echo(f"{task} is restarted on {answer['driver']}.")


@click.command()
@task_argument
@click.argument("driver")
@of_flows
def move(flows: Flows, task: str, driver: str) -> None:
    """Run TASK on DRIVER from now on, for as long as that driver lives."""
    answer = flows.request(_flow_of(flows, task), "move", task=task, driver=driver)
    if answer["from"] == driver:
        raise InvalidSpec(f"{task} is on {driver} already: nothing moves")
    click.echo(f"{task} moves from {answer['from']} to {driver}.")


@click.command()
@click.argument("flow")
@partitions_argument
@click.option("--stop", is_flag=True, help="End the tasks, too (spec.state: Stopped).")
@of_flows
def pause(flows: Flows, flow: str, partitions: str | None, stop: bool) -> None:
    """Let the tasks of FLOW rest; connections and positions are kept.

    With TOPIC, or TOPIC/PARTITIONS like orders/0-3,7, only these are not copied
    (spec.pausedPartitions).
    """
    if partitions is None:
        answer = flows.request(flow, "set-state", state="Stopped" if stop else "Paused")
        _refuse_unchanged(answer, f"{flow} is {'stopped' if stop else 'paused'}")
        click.echo(f"{flow} is {'stopped' if stop else 'paused'} until `headrace resume`.")
        return
    if stop:
        raise InvalidSpec("--stop is for a whole flow: leave it out, or the partitions")
    answer = flows.request(flow, "pause-partitions", partitions=partitions, paused=True)
    _refuse_unchanged(answer, f"{partitions} of {flow} is paused")
    click.echo(
        f"{partitions} of {flow} is paused until `headrace resume`: {answer['meant']} of its "
        "partitions now."
    )


@click.command()
@click.argument("flow")
@partitions_argument
@of_flows
def resume(flows: Flows, flow: str, partitions: str | None) -> None:
    """Go on with a paused or stopped FLOW, or with TOPIC[/PARTITIONS] of it only."""
    if partitions is None:
        answer = flows.request(flow, "set-state", state="Running")
        paused = ", ".join(answer["paused"])
        but = f"; paused are {paused}: name them, to resume them" if paused else ""
        _refuse_unchanged(answer, f"{flow} runs", but)
        click.echo(f"{flow} goes on.")
    else:
        answer = flows.request(flow, "pause-partitions", partitions=partitions, paused=False)
        click.echo(f"{partitions} of {flow} goes on.")
    if answer["paused"]:
        click.echo(f"Still paused, by spec.pausedPartitions: {', '.join(answer['paused'])}.")
    if answer["state"] != "Running":
        click.echo(f"But spec.state is {answer['state']}: `headrace resume {flow}` ends that.")


@click.command()
@click.argument("drivers", type=click.IntRange(min=0))
@flow_argument
@of_flows
def scale(flows: Flows, drivers: int, flow: str | None) -> None:
    """Have DRIVERS drivers for FLOW (which may be left out when there is one).

    On one machine drivers are shared by the flows of a run. Only what must move moves.
    """
    answer = flows.request(flow or the_only_one(flows), "scale", drivers=drivers)
    if answer["before"] == drivers:
        raise InvalidSpec(f"there are {drivers} drivers already: nothing is changed")
    click.echo(f"{answer['before']} -> {drivers} drivers.")


def _refuse_unchanged(answer: Answer, what_is: str, but: str = "") -> None:
    if not answer["changed"]:
        raise InvalidSpec(f"{what_is} already: nothing is changed{but}")


def _flow_of(flows: Flows, task: str) -> str:
    """The flow whose task this is: task names begin with their flow's."""
    names = flows.names()
    owners = [name for name in names if task.startswith(f"{name}-")]
    if not owners:
        raise InvalidSpec(
            f"no flow has a task {task}; there are: {', '.join(names)}; "
            "`headrace tasks` lists their tasks"
        )
    return max(owners, key=len)
