"""``headrace status``: the status of running flows, as YAML."""

import click
import yaml

from headrace.errors import InvalidSpec
from headrace.herder import control


@click.command()
@click.argument("flow", required=False)
def command(flow: str | None) -> None:
    """Print the status of FLOW, or of all flows that run here, as YAML.

    The fields are those of a ReplicationFlow's status; `units` lists its connectors and tasks.
    """
    flows = [flow] if flow else control.running_flows()
    if not flows:
        raise InvalidSpec("no flow is running here: start one with `headrace run FILE`")
    documents = [
        {"metadata": {"name": name}, "status": control.request(name, "status")} for name in flows
    ]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
