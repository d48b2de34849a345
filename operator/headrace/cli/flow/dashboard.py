"""``headrace flow dashboard``: the dashboard of a run in a browser."""

import platform
import webbrowser
from urllib.parse import urlsplit

import click

from headrace.cli.flow.flows import LocalFlows


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
        "No browser was found here: open that address in one. On another machine, first "
        f"`ssh -L {where.port}:{where.hostname}:{where.port} {platform.node()}`."
    )
