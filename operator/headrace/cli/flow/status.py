"""``headrace status``: shows the status of flows on this machine or in a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from headrace.cli.flow.flow_verbs import Flows, of_all_flows
from headrace.cli.screen.output import output_option, show_flows, watch_and_show, watch_option


@click.command()
@click.argument("flow", required=False)
@output_option
@watch_option
@of_all_flows
def command(flows: Flows, flow: str | None, output: str, watch: bool) -> None:
    """Show the status of FLOW, or of all flows.

    The table has a line for each flow. Errors follow in full. The formats yaml and json print the
    status of each ReplicationFlow, with connectors and tasks in `units`.

    Examples:
      headrace status
      headrace status orders --watch
      headrace status -A -o wide
      headrace status orders -n shop -o yaml
    """
    watch_and_show(lambda: flows.statuses(flow), output, show_flows, flow_names, watch=watch)


def flow_names(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of flows for ``-o name``."""
    return [f"replicationflow/{document['metadata']['name']}" for document in documents]
