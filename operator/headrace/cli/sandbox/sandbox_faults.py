"""``headrace sandbox freeze`` and ``thaw``: a broker that is there and does nothing."""

import click

from headrace.cli.sandbox.sandbox_records import clusters_meant, sandbox_option
from headrace.errors import InvalidSpec
from headrace.sandbox import Broker

brokers_argument = click.argument("brokers", metavar="CLUSTER[:BROKER]")


@click.command()
@brokers_argument
@sandbox_option
def freeze(brokers: str, sandbox: str | None) -> None:
    """Stop a broker, or all of a cluster, in the middle of what it does, until `thaw`.

    Its connections stay open and nothing answers: a machine that hangs, as seen from outside.
    """
    for broker in _brokers(brokers, sandbox):
        if broker.process is None:
            raise InvalidSpec(f"{broker} is down: there is nothing to freeze")
        broker.freeze()
        click.echo(f"{broker} is frozen; `headrace sandbox thaw {brokers}` lets it go on.")


@click.command()
@brokers_argument
@sandbox_option
def thaw(brokers: str, sandbox: str | None) -> None:
    """Let frozen brokers go on."""
    for broker in _brokers(brokers, sandbox):
        broker.thaw()
        click.echo(f"{broker} goes on.")


def _brokers(text: str, sandbox: str | None) -> tuple[Broker, ...]:
    name, colon, number = text.partition(":")
    cluster = clusters_meant(sandbox, name)[0]
    if not colon:
        return cluster.brokers
    if not (number.isascii() and number.isdigit()):
        raise InvalidSpec(f"{text!r}: after the ':' goes a broker's number, as in west:1")
    return (cluster.broker(int(number)),)
