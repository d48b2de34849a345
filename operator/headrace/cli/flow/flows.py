"""Flows that a command acts on: those of this machine, or those of a Kubernetes cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Protocol, TypeVar

import click

from headrace.cli.screen.cluster_options import cluster_options, is_plug_in
from headrace.control import control
from headrace.errors import InvalidSpec, NotRunning

Answer = dict[str, Any]
Result = TypeVar("Result")


class Flows(Protocol):
    """The interface to flows on this machine and in a cluster."""

    def names(self) -> list[str]:
        """Return the names of all flows; raise ``NotRunning`` if there is none."""
        ...

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """Send a request to a flow. The verbs are those of ``standalone/control_handlers.py``."""
        ...

    def statuses(self, flow: str | None) -> list[Answer]:
        """Return name and status, with ``units``, of one flow or of all flows."""
        ...


class LocalFlows:
    """Flows of the ``headrace run`` processes on this machine."""

    def names(self) -> list[str]:
        """Return the names of all flows; raise ``NotRunning`` if there is none."""
        flows = control.running_flows()
        if not flows:
            raise NotRunning(
                "no flow runs on this machine: start one with `headrace run FILE`. For the flows "
                "of a cluster, name the namespace (-n)"
            )
        return flows

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """Send a request over the control socket of a flow."""
        return control.request(flow, verb, **arguments)

    def statuses(self, flow: str | None) -> list[Answer]:
        """Return name and status of one flow or of all flows."""
        names = [flow] if flow else self.names()
        return [
            {"metadata": {"name": name}, "status": self.request(name, "status")} for name in names
        ]


@contextmanager
def open_flows(
    namespace: str | None, context: str | None, *, in_cluster: bool, everywhere: bool = False
) -> Iterator[Flows]:
    """Open the flows of a cluster if one is named or ``in_cluster``, else those of this machine."""
    if not (namespace or context or in_cluster or everywhere):
        yield LocalFlows()
        return
    # Not installed where flows run standalone only.
    from headrace.cli.flow.cluster_flows import open_cluster  # noqa: PLC0415

    with open_cluster(namespace, context, everywhere=everywhere) as flows:
        yield flows


def of_flows(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command its ``Flows``, and the options that name a cluster."""

    @cluster_options
    @click.pass_context
    def with_flows(
        ctx: click.Context, /, namespace: str | None, context: str | None, **arguments: Any
    ) -> Result:
        with open_flows(namespace, context, in_cluster=is_plug_in(ctx)) as flows:
            return command(flows, **arguments)

    return update_wrapper(with_flows, command)


def of_all_flows(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same for a command that lists flows: it has ``-A`` for all namespaces."""

    @cluster_options
    @click.option(
        "-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces of a cluster."
    )
    @click.pass_context
    def with_flows(
        ctx: click.Context,
        /,
        namespace: str | None,
        context: str | None,
        everywhere: bool,
        **arguments: Any,
    ) -> None:
        if namespace and everywhere:
            raise click.UsageError("give one of --namespace NAMESPACE and --all-namespaces", ctx)
        with open_flows(
            namespace, context, in_cluster=is_plug_in(ctx), everywhere=everywhere
        ) as flows:
            command(flows, **arguments)

    return update_wrapper(with_flows, command)


def the_only_one(flows: Flows) -> str:
    """Return the only flow; raise ``InvalidSpec`` if there are several."""
    names = flows.names()
    if len(names) > 1:
        raise InvalidSpec(f"there are several flows ({', '.join(names)}): name one of them")
    return names[0]
