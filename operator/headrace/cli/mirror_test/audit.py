"""``headrace audit``: writes the manifest of an audit of a flow, and runs the audit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from headrace.api import AuditExamples, ReplicationFlow, load
from headrace.cli.mirror_test.outputs import ReportOutputs, output_options
from headrace.cli.mirror_test.verify import timeout_option, verdict_code, verdict_or_sentence
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import named_flow
from headrace.cli.screen.options import secrets_folder, secrets_option
from headrace.cli.screen.output import show, show_document
from headrace.control import control
from headrace.mirror_test import resolve

_MANIFEST = "audit.yaml"


@click.command()
@click.argument("flow")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, exists=True, allow_dash=True),
    metavar="FILE",
    help="Manifest of the flow, for a flow that does not run here; - for standard input.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="REGEX",
    help="Topics of the source, instead of all topics that the flow copies. Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="REGEX", help="Topics to leave out. Repeatable.")
@click.option(
    "--since",
    metavar="TIME",
    help="Compare records from this time on, such as 2026-01-31T00:00:00Z, or from the frontier of "
    "the last audit on (last-audit). [default: all]",
)
@click.option(
    "--settle",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Time that the flow may take to copy the records of the source (settleSeconds), in "
    "seconds. [default: 120]",
)
@click.option(
    "--examples",
    type=click.Choice([str(one) for one in AuditExamples], case_sensitive=False),
    metavar="CONTENT",
    help="Content of the report about records that differ: Coordinates (default), Hashes, or "
    "Records (also keys and values).",
)
@secrets_option("Folder of Secrets, DIR/<name>/<key>, instead of the Secrets of the run.")
@timeout_option
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the report and of the manifest. [default: headrace-reports/<flow>-audit]",
)
@output_options
@click.option("--dry-run", is_flag=True, help="Print the manifest, without a run.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "name"]),
    metavar="FORMAT",
    help="Print the manifest in this format (yaml, json or name), without a run.",
)
def command(  # noqa: PLR0917 - click gives them by name
    flow: str,
    file: Path | None,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    since: str | None,
    settle: int | None,
    examples: str | None,
    secrets: Path | None,
    timeout: float,
    report: Path | None,
    outputs: ReportOutputs,
    dry_run: bool,
    output: str | None,
) -> int:
    """Compare the records of both clusters of FLOW.

    The command writes the manifest of an audit and runs it as `headrace verify` does, with the
    same exit codes. FLOW runs on this machine, or elsewhere with the manifest of -f. The flow must
    not be paused.

    Examples:
      headrace audit orders
      headrace audit orders -f flow.yaml --secrets secrets
      headrace audit orders --topic 'orders-.*' --since 2026-01-31T00:00:00Z
      headrace audit orders --since last-audit
      headrace audit orders -o yaml > audit.yaml
    """
    with verdict_or_sentence(outputs), _open(flow, file, secrets) as (audited, secrets_of_flow):
        manifest = manifest_of(
            audited.metadata.name, topics, exclude, since=since, settle_s=settle, examples=examples
        )
        if output or dry_run:
            name = f"mirrortest/{manifest['metadata']['name']}"
            show(manifest, output or "yaml", show_document, lambda _: [name])
            return Exit.OK
        folder = report or Path("headrace-reports") / manifest["metadata"]["name"]
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / _MANIFEST
        written.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
        [test] = load([written]).tests
        click.echo(f"Manifest: {written}", err=True)
        if file is not None:
            test = resolve(test, audited)
        return verdict_code(test, secrets_of_flow, timeout, report, None, outputs=outputs)


@contextmanager
def _open(
    name: str, file: Path | None, secrets: Path | None
) -> Iterator[tuple[ReplicationFlow, Path | None]]:
    """Yield a flow of the manifest or of this machine, and the folder of its Secrets."""
    if file is not None:
        manifest = load([file])
        with secrets_folder(secrets, manifest.secrets) as folder:
            yield named_flow(file, manifest.flows, name), folder
        return
    access = control.request(name, "access")
    if secrets is None and access["secrets"] is not None:
        secrets = Path(access["secrets"])
    yield ReplicationFlow.model_validate(access["flow"]), secrets


def manifest_of(
    flow: str,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    *,
    since: str | None,
    settle_s: int | None,
    examples: str | None,
) -> dict[str, Any]:
    """Return the manifest of an audit of a flow. Fields with default values are omitted."""
    last = since is not None and since.lower() == "last-audit"
    start = {"mode": "LastAudit"} if last else {"mode": "Timestamp", "timestamp": since}
    fields = {
        "topics": list(topics),
        "exclude": list(exclude),
        "startFrom": start if since else None,
        "examples": examples,
    }
    audit = {name: value for name, value in fields.items() if value}
    settle = {} if settle_s is None else {"settleSeconds": settle_s}
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": f"{flow}-audit"},
        "spec": {"flowName": flow, **settle, "audit": audit},
    }
