"""Where the flows are that a command is about: on this machine, or in a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Protocol

import click

from headrace.control import control
from headrace.errors import InvalidSpec

Answer = dict[str, Any]


class Flows(Protocol):
    """What the commands need, in both places. Questions are those of ``herder/verbs.py``."""

    def names(self) -> list[str]:
        """The flows that there are; raises ``InvalidSpec`` when there is none."""
        ...

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """Ask a flow."""
        ...


class LocalFlows:
    """Those of the ``headrace run``s on this machine."""

    def names(self) -> list[str]:
        """See ``Flows``."""
        flows = control.running_flows()
        if not flows:
            raise InvalidSpec(
                "no flow is running here: start one with `headrace run FILE`; for those of a "
                "cluster, name its namespace (-n)"
            )
        return flows

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """See ``Flows``."""
        return control.request(flow, verb, **arguments)


@contextmanager
def open_flows(namespace: str | None, context: str | None, as_plugin: bool) -> Iterator[Flows]:
    """Those of a cluster when a namespace or context is named, or as ``kubectl headrace``."""
    if not (namespace or context or as_plugin):
        yield LocalFlows()
        return
    # Not installed where flows run standalone only.
    from headrace.cli.flow.cluster_flows import open_cluster  # noqa: PLC0415

    with open_cluster(namespace, context) as flows:
        yield flows


def of_flows(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command its ``Flows``, and the options that say which."""

    @click.option("-n", "--namespace", help="Of a cluster, not of this machine.")
    @click.option("--context", help="Of the kubeconfig: which cluster.")
    @click.pass_context
    def with_flows(
        ctx: click.Context, /, namespace: str | None, context: str | None, **arguments: Any
    ) -> None:
        as_plugin = ctx.find_root().info_name == "kubectl headrace"
        with open_flows(namespace, context, as_plugin) as flows:
            command(flows, **arguments)

    return update_wrapper(with_flows, command)


def the_only_one(flows: Flows) -> str:
    """The flow that is meant when none is named; ``InvalidSpec`` where there are several."""
    names = flows.names()
    if len(names) > 1:
        raise InvalidSpec(f"there are several flows ({', '.join(names)}): name one of those meant")
    return names[0]
