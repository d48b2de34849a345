"""``headrace check``: whether the clusters of a manifest's flows have what these need."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from headrace.api import load
from headrace.cli.flow.flow_access import open_context
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.output import output_option, show
from headrace.cli.screen.secrets_folder import secrets_folder, secrets_option
from headrace.cli.screen.tables import show_findings
from headrace.connect.preflight.findings import Acl, Finding, Outcome
from headrace.connect.preflight.flow_check import check_flow
from headrace.errors import InvalidSpec


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@secrets_option("The Secrets of the clusters, DIR/<name>/<key>; else those of FILE.")
@output_option
def command(file: Path, secrets: Path | None, output: str | None) -> Exit:
    """Check that both clusters have what the flows of FILE need.

    A line for each right, setting and version: ok, warning (the flow carries out its spec, but not
    under all circumstances) or missing (it cannot do some of what its spec asks); below, the
    commands that correct it. It asks the brokers, from here, and changes nothing. It ends with 1
    when something is missing.
    """
    manifest = load([file])
    if not manifest.flows:
        raise InvalidSpec(f"{file} holds no ReplicationFlow")
    found: dict[str, list[Finding]] = {}
    with secrets_folder(secrets, manifest.secrets) as folder:
        for flow in manifest.flows:
            with open_context(flow, folder) as context:
                found[flow.metadata.name] = check_flow(context)
    show([_document(name, each) for name, each in found.items()], output, show_findings)
    missing = any(one.outcome is Outcome.MISSING for each in found.values() for one in each)
    return Exit.FAILED if missing else Exit.OK


def _document(flow: str, findings: Sequence[Finding]) -> dict[str, Any]:
    return {"flow": flow, "findings": [_entry(one) for one in findings]}


def _entry(found: Finding) -> dict[str, Any]:
    return {
        "cluster": found.side.lower() if found.side else "both",
        "subject": found.subject,
        "check": found.what,
        "result": found.outcome.value,
        "message": found.message,
        "acl": found.acl and _acl(found.acl),
        "command": found.command,
    }


def _acl(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "operation": acl.operation,
        "resourceType": acl.resource.value,
        "names": list(acl.names),
        "patternType": "prefixed" if acl.prefixed else "literal",
    }
