"""The clusters of a flow, for a command that asks their brokers from here."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace import logs
from headrace.api import ReplicationFlow, load
from headrace.cli.flow.flows import Flows, of_flows, the_only_one
from headrace.cli.screen.output import output_option, show
from headrace.cli.screen.secrets_folder import secrets_folder, secrets_option
from headrace.connect import DriverIdentity
from headrace.connect.runtime.context import FlowContext
from headrace.errors import InvalidSpec

Command = TypeVar("Command", bound=Callable[..., Any])
Document = dict[str, Any]
"""All that a command has found, for programs."""


def flow_options(file_help: str) -> Callable[[Command], Command]:
    """A command gets what ``open_flow`` takes: ``flow``, ``file`` and ``secrets``."""

    def decorated(command: Command) -> Command:
        command = secrets_option(
            "For a flow of a cluster or of a manifest: its Secrets, DIR/<name>/<key>."
        )(command)
        command = click.option(
            "-f",
            "--file",
            type=click.Path(path_type=Path, exists=True),
            help=f"A manifest that has the flow: {file_help}.",
        )(command)
        return click.argument("flow", required=False)(command)

    return decorated


def of_flow(
    file_help: str, table: Callable[[Document], None]
) -> Callable[[Callable[..., Document]], Callable[..., None]]:
    """A command gets the context of the flow that its options name, and its ``Flows``, None where
    nobody runs it. What it returns is shown, for people as ``table``."""

    def decorated(command: Callable[..., Document]) -> Callable[..., None]:
        @flow_options(file_help)
        @output_option
        @of_flows
        @wraps(command)
        def with_context(
            flows: Flows,
            flow: str | None,
            file: Path | None,
            secrets: Path | None,
            output: str | None,
            **options: Any,
        ) -> None:
            with open_flow(flows, flow, file, secrets) as context:
                found = command(context, None if file else flows, **options)
            show(found, output, table)

        return with_context

    return decorated


@contextmanager
def open_context(flow: ReplicationFlow, secrets: Path | None) -> Iterator[FlowContext]:
    """With clients of its own, beside those of the flow's drivers. ``secrets``: see
    ``FlowContext``."""
    logs.configure("WARNING")
    context = FlowContext(flow, DriverIdentity("command", uuid.uuid4().hex[:12]), secrets)
    try:
        yield context
    finally:
        context.close()


def open_answered(
    answer: Mapping[str, Any], secrets: Path | None
) -> AbstractContextManager[FlowContext]:
    """Of a verb's answer that has the ``flow``, and its ``secrets`` where it runs on this machine;
    a folder that the user named wins."""
    local = answer.get("secrets")
    folder = secrets or (Path(local) if local else None)
    return open_context(ReplicationFlow.model_validate(answer["flow"]), folder)


def open_flow(
    flows: Flows, flow: str | None, file: Path | None, secrets: Path | None
) -> AbstractContextManager[FlowContext]:
    """Of a flow that runs, or of a manifest's; without its name the only one."""
    if file is not None:
        return _of_manifest(file, flow, secrets)
    return open_answered(flows.request(flow or the_only_one(flows), "access"), secrets)


@contextmanager
def _of_manifest(file: Path, flow: str | None, secrets: Path | None) -> Iterator[FlowContext]:
    manifest = load([file])
    found = [one for one in manifest.flows if flow in (None, one.metadata.name)]
    if len(found) != 1:
        names = ", ".join(one.metadata.name for one in manifest.flows) or "none"
        raise InvalidSpec(f"{file} holds these ReplicationFlows: {names}; name one of those")
    with (
        secrets_folder(secrets, manifest.secrets) as folder,
        open_context(found[0], folder) as context,
    ):
        yield context
