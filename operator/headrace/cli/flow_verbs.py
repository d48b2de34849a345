"""Commands about a flow that runs here: ``headrace tasks``, ``describe``, ``restart`` ..."""

import click
import yaml
from rich.console import Console
from rich.table import Table

from headrace.errors import InvalidSpec
from headrace.herder import control

flow_argument = click.argument("flow", required=False)
task_argument = click.argument("task")


@click.command()
@flow_argument
def status(flow: str | None) -> None:
    """Print the status of FLOW, or of all flows that run here, as YAML.

    The fields are those of a ReplicationFlow's status; `units` lists its connectors and tasks.
    """
    documents = [
        {"metadata": {"name": name}, "status": control.request(name, "status")}
        for name in ([flow] if flow else _running())
    ]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


@click.command()
@flow_argument
def tasks(flow: str | None) -> None:
    """List the connectors and tasks of FLOW, or of all flows that run here."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("TASK", "STATE", "DRIVER", "STANDBYS", "LAG RECORDS", "LAG S", "RESTARTS"):
        table.add_column(column, no_wrap=True)
    table.add_column("ERROR", overflow="fold")
    for name in [flow] if flow else _running():
        for unit in control.request(name, "status")["units"]:
            table.add_row(
                unit["name"],
                unit.get("phase", "-"),
                unit["driverName"] or f"- (assigned to {unit['assignedTo'] or 'none'})",
                ", ".join(unit["standbys"]),
                *(str(unit.get(field, "")) for field in ("lagRecords", "lagSeconds", "restarts")),
                unit.get("lastError", {}).get("message", ""),
            )
    console = Console(highlight=False)
    # What is piped to a file or a program is not to be folded at some width.
    (console if console.is_terminal else Console(highlight=False, width=1000)).print(table)


@click.command()
@task_argument
def describe(task: str) -> None:
    """Print everything that is known of TASK, as YAML."""
    click.echo(
        yaml.safe_dump(control.request(_flow_of(task), "describe", task=task), sort_keys=False)
    )


@click.command()
@task_argument
def restart(task: str) -> None:
    """Stop TASK and start it anew on its driver, failed or not."""
    answer = control.request(_flow_of(task), "restart", task=task)
    click.echo(f"{task} is restarted on {answer['driver']}.")


@click.command()
@task_argument
@click.argument("driver")
def move(task: str, driver: str) -> None:
    """Run TASK on DRIVER from now on, for as long as that driver lives."""
    answer = control.request(_flow_of(task), "move", task=task, driver=driver)
    click.echo(f"{task} moves from {answer['from']} to {driver}.")


@click.command()
@click.argument("flow")
def pause(flow: str) -> None:
    """Let the tasks of FLOW rest; connections and positions are kept."""
    control.request(flow, "pause", paused=True)
    click.echo(f"{flow} is paused; `headrace resume {flow}` goes on.")


@click.command()
@click.argument("flow")
def resume(flow: str) -> None:
    """Go on with a paused FLOW."""
    control.request(flow, "pause", paused=False)
    click.echo(f"{flow} goes on.")


@click.command()
@click.argument("drivers", type=click.IntRange(min=0))
@flow_argument
def scale(drivers: int, flow: str | None) -> None:
    """Have DRIVERS driver processes in the run of FLOW (which may be left out when one runs).

    Drivers are shared by the flows of a run. Only what must move moves.
    """
    answer = control.request(flow or _the_only_run(), "scale", drivers=drivers)
    click.echo(f"{answer['before']} -> {drivers} drivers.")


def _running() -> list[str]:
    flows = control.running_flows()
    if not flows:
        raise InvalidSpec("no flow is running here: start one with `headrace run FILE`")
    return flows


def _the_only_run() -> str:
    flows = _running()
    if len(flows) > 1:
        raise InvalidSpec(f"several flows run here ({', '.join(flows)}): name one of those meant")
    return flows[0]


def _flow_of(task: str) -> str:
    """The flow whose task this is: task names begin with their flow's."""
    owners = [flow for flow in _running() if task.startswith(f"{flow}-")]
    if not owners:
        raise InvalidSpec(
            f"no flow that runs here has a task {task}; running: {', '.join(_running())}; "
            "`headrace tasks` lists their tasks"
        )
    return max(owners, key=len)
