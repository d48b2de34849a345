"""Opens the clusters of a flow, for commands that contact the brokers from this machine."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace import logs
from headrace.api import ReplicationFlow, load
from headrace.cli.flow.flow_verbs import Flows, LocalFlows, of_flows, single_flow
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import named_flow
from headrace.cli.screen.options import secrets_folder, secrets_option
from headrace.cli.screen.output import Table, output_option, watch_and_show
from headrace.connect import DriverIdentity
from headrace.connect.runtime.context import FlowContext
from headrace.datapath import KAFKA
from headrace.errors import InvalidSpec, NotRunning, Unreachable
from headrace.kafka import Throttled
from headrace.replication import same_clusters

Command = TypeVar("Command", bound=Callable[..., Any])
Document = dict[str, Any]
"""Data that a command prints."""


def flow_options(when: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the parameters ``flow``, ``file`` and ``secrets`` to a command.

    ``when`` says in the help when a manifest can be used.
    """

    def decorated(command: Command) -> Command:
        command = secrets_option(
            "Folder of Secrets, DIR/<name>/<key>, for a flow of a cluster or of a manifest."
        )(command)
        command = click.option(
            "-f",
            "--file",
            type=click.Path(path_type=Path, exists=True, allow_dash=True),
            metavar="FILE",
            help=f"Manifest of the flow, for a flow that {when}; - for standard input.",
        )(command)
        return click.argument("flow", required=False)(command)

    return decorated


def of_flow(
    when: str,
    table: Table[Document],
    names: Callable[[Document], Iterable[str]] | None = None,
    *,
    only_reads: bool = False,
    failed: Callable[[Document], bool] = lambda _: False,
) -> Callable[[Callable[..., Document]], Callable[..., Exit]]:
    """Return a decorator that passes the context of the chosen flow to a command.

    The command also receives the ``Flows``, or None if the flow comes from a manifest and does not
    run on this machine. The document that the command returns is printed.

    Args:
        when: Says in the help when a manifest can be used.
        table: Prints the document as a table.
        names: Returns the names for ``-o name``. The default is the name of the flow.
        only_reads: Pass None instead of the ``Flows`` for every manifest.
        failed: Returns True if the exit code must be 1 for the document.
    """

    def decorated(command: Callable[..., Document]) -> Callable[..., Exit]:
        @flow_options(when)
        @output_option
        @of_flows
        @wraps(command)
        def with_context(  # noqa: PLR0917 - click gives them by name
            flows: Flows,
            flow: str | None,
            file: Path | None,
            secrets: Path | None,
            output: str,
            watch: bool = False,
            **options: Any,
        ) -> Exit:
            running: Flows | None
            with open_flow(flows, flow, file, secrets) as context:
                running = flows
                if file is not None:
                    running = None if only_reads else _running_here(context)
                document = watch_and_show(
                    lambda: command(context, running, **options),
                    output,
                    table,
                    names or _flow_name,
                    watch=watch,
                )
            return Exit.FAILED if failed(document) else Exit.OK

        return with_context

    return decorated


def running_flow(flows: Flows, name: str) -> ReplicationFlow:
    """Return a flow with its current spec in the run or cluster."""
    return ReplicationFlow.model_validate(flows.request(name, "access")["flow"])


def flows_here() -> LocalFlows | None:
    """Return the flows that run on this machine, or None if there are none."""
    flows = LocalFlows()
    try:
        flows.names()
    except NotRunning:
        return None
    return flows


def _running_here(context: FlowContext) -> Flows | None:
    """Return the flows of this machine if the manifest's flow runs here, or None.

    None also if the run does not respond: after a disaster it may be frozen.
    """
    flows = flows_here()
    if flows is None or context.name not in flows.names():
        return None
    try:
        flow = running_flow(flows, context.name)
    except Unreachable:
        return None
    if not same_clusters(context.flow, flow):
        raise InvalidSpec(
            f"a flow {context.name} between other addresses runs on this machine: leave out --file "
            "to use that flow, or give the flow of the file another metadata.name"
        )
    return flows


def _flow_name(document: Document) -> list[str]:
    return [f"replicationflow/{document['flow']}"]


@contextmanager
def open_context(flow: ReplicationFlow, secrets: Path | None) -> Iterator[FlowContext]:
    """Open the clusters of a flow with clients of this process.

    ``secrets`` is the folder of Secrets, or None.
    """
    logs.configure("WARNING")
    driver = DriverIdentity("command", uuid.uuid4().hex[:12])
    clients = replace(KAFKA, on_throttled=_report_throttled)
    context = FlowContext(flow, driver, secrets, clients=clients)
    try:
        yield context
    finally:
        context.close()


def _report_throttled(error: Throttled) -> None:
    """Print the error, and let the command wait."""
    click.echo(f"headrace: {error}", err=True)


def open_answered(
    answer: Mapping[str, Any], secrets: Path | None
) -> AbstractContextManager[FlowContext]:
    """Open the clusters of the flow in an answer to the verb ``access``.

    The answer of a run on this machine also contains its folder of Secrets. ``secrets`` takes
    precedence.
    """
    local = answer.get("secrets")
    folder = secrets or (Path(local) if local else None)
    return open_context(ReplicationFlow.model_validate(answer["flow"]), folder)


def open_flow(
    flows: Flows, flow: str | None, file: Path | None, secrets: Path | None
) -> AbstractContextManager[FlowContext]:
    """Open the clusters of a running flow, or of a flow in the manifest ``file``.

    The name ``flow`` may be None if there is only one flow.
    """
    if file is not None:
        return _of_manifest(file, flow, secrets)
    return open_answered(flows.request(flow or single_flow(flows), "access"), secrets)


@contextmanager
def _of_manifest(file: Path, flow: str | None, secrets: Path | None) -> Iterator[FlowContext]:
    manifest = load([file])
    found = named_flow(file, manifest.flows, flow)
    with (
        secrets_folder(secrets, manifest.secrets) as folder,
        open_context(found, folder) as context,
    ):
        yield context
