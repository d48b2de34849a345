"""``headrace task``: lists, describes, restarts and moves connectors and tasks."""

import re
from typing import Any

import click

from headrace.cli.flow.flow_verbs import Flows, of_all_flows, of_flows
from headrace.cli.screen.output import (
    output_option,
    show,
    show_document,
    show_tasks,
    watch_and_show,
    watch_option,
)
from headrace.errors import InvalidSpec

_Json = dict[str, Any]
_UNIT = re.compile(r"[a-z]+-[a-z]+-[0-9]+")
"""End of a task's name: its type and its number."""
task_argument = click.argument("task")


@click.command("list")
@click.argument("flow", required=False)
@output_option
@watch_option
@of_all_flows
def list_tasks(flows: Flows, flow: str | None, output: str, watch: bool) -> None:
    """List the connectors and tasks of FLOW, or of all flows.

    The table shows state, driver, lag, restarts and the last error of each. It is cut at the width
    of the terminal; -o wide is not.

    Examples:
      headrace task list
      headrace task list orders --watch
      headrace task list orders -n shop -o json
    """
    watch_and_show(
        lambda: [
            _with_namespace(unit, document)
            for document in flows.statuses(flow)
            for unit in document["status"]["units"]
        ],
        output,
        show_tasks,
        lambda units: [f"replicationtask/{unit['name']}" for unit in units],
        watch=watch,
    )


@click.command()
@task_argument
@output_option
@of_flows
def describe(flows: Flows, task: str, output: str) -> None:
    """Print everything about TASK.

    The default format is yaml. It has the fields of a ReplicationTask.

    Examples:
      headrace task describe orders-source-task-0
      headrace task describe orders-source-task-0 -n shop -o json
    """
    found = flows.request(_flow_of(flows, task), "describe", task=task)
    show(found, output, show_document, lambda _: [f"replicationtask/{task}"])


@click.command()
@task_argument
@of_flows
def restart(flows: Flows, task: str) -> None:
    """Restart TASK on its driver, whether it failed or runs.

    Examples:
      headrace task restart orders-source-task-0
      headrace task restart orders-source-task-0 -n shop
    """
    answer = flows.request(_flow_of(flows, task), "restart", task=task)
    click.echo(f"{task} is restarted on {answer['driver']}.")


@click.command()
@task_argument
@click.argument("driver")
@of_flows
def move(flows: Flows, task: str, driver: str) -> None:
    """Move TASK to DRIVER.

    The task stays on this driver while the driver exists. In a cluster, DRIVER is the name of a
    pod.

    Examples:
      headrace task move orders-source-task-0 driver-2
      headrace task move orders-source-task-0 orders-driver-7c9f-x2x -n shop
    """
    answer = flows.request(_flow_of(flows, task), "move", task=task, driver=driver)
    if answer["from"] == driver:
        click.echo(f"{task} is on {driver} already: nothing is changed.")
    else:
        click.echo(f"{task} moves from {answer['from']} to {driver}.")


def _with_namespace(unit: _Json, flow: _Json) -> _Json:
    namespace = flow["metadata"].get("namespace")
    return {"namespace": namespace, **unit} if namespace else unit


def _flow_of(flows: Flows, task: str) -> str:
    """Return the flow of a task.

    The name of a task is the name of its flow, the two words of its type, and a number. If there
    is a flow ``orders-source``, ``orders-source-task-0`` is nevertheless a task of ``orders``.
    """
    names = flows.names()
    owners = [name for name in names if task.startswith(f"{name}-")]
    if not owners:
        raise InvalidSpec(
            f"no flow has a task {task}; there are: {', '.join(names)}; "
            "`headrace task list` lists their tasks"
        )

    def closeness(owner: str) -> tuple[bool, int]:
        return bool(_UNIT.fullmatch(task.removeprefix(f"{owner}-"))), len(owner)

    return max(owners, key=closeness)
