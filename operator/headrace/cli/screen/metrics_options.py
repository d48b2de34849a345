"""The options ``--metrics-port`` and ``--metrics-address`` of ``run`` and ``verify``."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def metrics_options(pages: str) -> Callable[[Command], Command]:
    """Give a command ``metrics_port`` and ``metrics_address``; ``pages`` are served there."""

    def decorated(command: Command) -> Command:
        command = click.option(
            "--metrics-address",
            default="127.0.0.1",
            show_default=True,
            metavar="ADDRESS",
            help="Address on which --metrics-port is served; 0.0.0.0 for all addresses.",
        )(command)
        return click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            help=f"Port of {pages}; 0 for any free port.",
        )(command)

    return decorated
