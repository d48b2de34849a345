"""``headrace sandbox broker``: faults of brokers."""

import click

from headrace.cli.sandbox.sandbox_records import clusters_meant, sandbox_option
from headrace.errors import InvalidSpec
from headrace.sandbox import Broker

brokers_argument = click.argument("brokers", metavar="CLUSTER[:BROKER]")


@click.group(short_help="Freeze and thaw brokers.")
def broker() -> None:
    """Freeze and thaw the brokers of a sandbox."""


@broker.command(short_help="Freeze brokers.")
@brokers_argument
@sandbox_option
def freeze(brokers: str, sandbox: str | None) -> None:
    """Freeze a broker, or all brokers of a cluster, until `thaw`.

    A frozen broker keeps its connections and does not answer, like a machine that hangs.

    Examples:
      headrace sandbox broker freeze west:1
      headrace sandbox broker freeze west
    """
    for one in _brokers(brokers, sandbox):
        if one.process is None:
            raise InvalidSpec(f"{one} is down: there is nothing to freeze")
        one.freeze()
        click.echo(f"{one} is frozen; `headrace sandbox broker thaw {brokers}` ends that.")


@broker.command(short_help="Let frozen brokers continue.")
@brokers_argument
@sandbox_option
def thaw(brokers: str, sandbox: str | None) -> None:
    """Let a frozen broker, or all brokers of a cluster, continue.

    Examples:
      headrace sandbox broker thaw west:1
      headrace sandbox broker thaw west
    """
    for one in _brokers(brokers, sandbox):
        one.thaw()
        click.echo(f"{one} continues.")


def _brokers(text: str, sandbox: str | None) -> tuple[Broker, ...]:
    name, colon, number = text.partition(":")
    cluster = clusters_meant(sandbox, name)[0]
    if not colon:
        return cluster.brokers
    if not (number.isascii() and number.isdigit()):
        raise InvalidSpec(f"{text!r}: after the ':' goes a broker's number, as in west:1")
    return (cluster.broker(int(number)),)
