"""``headrace check``: checks that the clusters have what the flows of a manifest need."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from headrace.api import load
from headrace.cli.flow.flow_access import open_context
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import manifest_options
from headrace.cli.screen.options import secrets_folder, secrets_option
from headrace.cli.screen.output import output_option, show, show_findings
from headrace.connect.preflight.permissions import Acl, CheckResult, Finding
from headrace.connect.preflight.preflight import check_flow
from headrace.errors import InvalidSpec


@click.command()
@manifest_options
@secrets_option("Folder of Secrets, DIR/<name>/<key>, instead of Secret documents.")
@output_option
def command(files: tuple[Path, ...], secrets: Path | None, output: str) -> Exit:
    """Check that both clusters have what the flows in FILE need.

    The table has a line for each permission, setting and version. The result is ok, warning (the
    flow works, but not in all circumstances) or missing (the flow cannot do all that its spec
    says). Commands that correct the findings follow. The exit code is 1 if something is missing.

    The command contacts the brokers from this machine and changes nothing.

    Examples:
      headrace check flow.yaml
      headrace check -f flows/ --secrets secrets -o json
    """
    manifest = load(files)
    if not manifest.flows:
        raise InvalidSpec(f"there is no ReplicationFlow in {', '.join(map(str, files))}")
    found: dict[str, list[Finding]] = {}
    with secrets_folder(secrets, manifest.secrets) as folder:
        for flow in manifest.flows:
            with open_context(flow, folder) as context:
                found[flow.metadata.name] = check_flow(context)
    documents = [_document(name, each) for name, each in found.items()]
    show(documents, output, show_findings, _names)
    missing = any(one.outcome is CheckResult.MISSING for each in found.values() for one in each)
    return Exit.FAILED if missing else Exit.OK


def _names(documents: Sequence[dict[str, Any]]) -> list[str]:
    return [f"replicationflow/{one['flow']}" for one in documents]


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
