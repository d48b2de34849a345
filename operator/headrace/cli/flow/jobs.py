"""``headrace job``: prints Kubernetes Jobs that run a command in a cluster."""

from pathlib import Path
from typing import Any

import click
import yaml

from headrace.api import ReplicationFlow, load
from headrace.cli.screen.manifest_option import named_flow
from headrace.controller.resources.deployment import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secret_names,
)

_MANIFEST_FOLDER, _MANIFEST = "/etc/headrace/manifest", "flow.yaml"
_HELP = """Print a Job that runs `headrace {command}` for FLOW in a Kubernetes cluster.{note}

The output is a ConfigMap with the manifest of the flow, and a Job that mounts it together with the
Secrets and ConfigMaps that the flow names. The pod has no access to the Kubernetes API. Options
after -- are options of `headrace {command}`.

\b
Examples:
  headrace job {verb} orders -f flow.yaml -n shop --image IMAGE -- {option} | kubectl create -f -
"""


class _Lines(str):
    """Text that YAML prints in block style."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _Lines, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
)


def _print_job(verb: str, command: str, option: str, note: str = "") -> click.Command:
    text = _HELP.format(verb=verb, command=command, option=option, note=note)

    @click.command(name=verb, help=text)
    @click.argument("flow")
    @click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]")
    @click.option(
        "-f",
        "--file",
        required=True,
        type=click.Path(path_type=Path, exists=True, allow_dash=True),
        metavar="FILE",
        help="Manifest of the flow; - for standard input.",
    )
    @click.option("--image", required=True, metavar="IMAGE", help="Image of headrace.")
    @click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        metavar="NAMESPACE",
        help="Namespace of the flow's Secrets, where the Job runs.",
    )
    def printed(
        flow: str, options: tuple[str, ...], file: Path, image: str, namespace: str
    ) -> None:
        found = named_flow(file, load([file]).flows, flow)
        name = f"headrace-{verb}-{found.metadata.name}"
        metadata = {"name": name, "namespace": namespace}
        args = [*command.split(), flow, f"--file={_MANIFEST_FOLDER}/{_MANIFEST}"]
        if secrets := secret_names(found):
            args.append(f"--secrets={SECRETS_FOLDER}")
        args += options
        documents = [_config_map(metadata, found), _job(metadata, image, args, secrets)]
        click.echo(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False), nl=False)

    return printed


failover = _print_job("failover", "failover", "--dry-run")
reverse = _print_job("reverse", "flow reverse", "--dry-run")
import_ = _print_job("import", "flow import mm2", "--dry-run")
audit = _print_job(
    "audit",
    "audit",
    "--since 2026-01-31T00:00:00Z",
    """

The image is headrace-spark. The log has the verdict; the report ends with the pod.""",
)


def _config_map(metadata: dict[str, str], flow: ReplicationFlow) -> dict[str, Any]:
    fields = flow.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    manifest = {"apiVersion": flow.api_version, "kind": flow.kind, **fields}
    text = _Lines(yaml.safe_dump(manifest, sort_keys=False))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {_MANIFEST: text},
    }


def _job(
    metadata: dict[str, str], image: str, args: list[str], secrets: list[str]
) -> dict[str, Any]:
    container = {
        "name": "headrace",
        "image": image,
        "command": ["headrace"],
        "args": args,
        "workingDir": "/tmp",
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "manifest", "mountPath": _MANIFEST_FOLDER, "readOnly": True},
            *build_mounts(secrets),
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "manifest", "configMap": {"name": metadata["name"]}},
            *build_volumes(secrets),
        ],
    }
    # A failed command is not repeated. Its message says what to do first.
    spec = {"backoffLimit": 0, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
