"""Options that name a Kubernetes cluster and a namespace."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

PLUG_IN = "kubectl headrace"
"""Name of the program if kubectl calls it as a plug-in."""


def cluster_options(command: Command) -> Command:
    """Add the parameters ``namespace`` and ``context`` to a command."""
    for option in (
        click.option("--context", metavar="CONTEXT", help="Context of the kubeconfig."),
        click.option(
            "-n", "--namespace", metavar="NAMESPACE", help="Namespace of a Kubernetes cluster."
        ),
    ):
        command = option(command)
    return command


def is_plug_in(ctx: click.Context) -> bool:
    """Return True if kubectl called the command as a plug-in."""
    return ctx.find_root().info_name == PLUG_IN
