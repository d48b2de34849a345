"""``headrace sandbox flow``: the manifest of a flow between the clusters of a sandbox."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from headrace.cli.sandbox.sandbox_records import sandbox_meant, sandbox_option
from headrace.errors import InvalidSpec
from headrace.sandbox import USERNAME, Cluster, Sandbox

_Json = dict[str, Any]


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--name", default="my-flow", show_default=True, metavar="FLOW", help="Name of the flow."
)
@sandbox_option
def flow(topics: tuple[str, ...], name: str, sandbox: str | None) -> None:
    """Print a flow that copies TOPICs from the first cluster of a sandbox to the last.

    TOPIC is a regular expression that matches the whole name. If the clusters have TLS and
    passwords, the manifest uses them and contains the Secrets.

    Examples:
      headrace sandbox flow 'orders.*' > flow.yaml
      headrace sandbox flow orders payments --name shop | headrace run -f -
    """
    meant = sandbox_meant(sandbox)
    document = flow_document(meant, topics, name)
    secrets = [secret for at in _ends(meant) for secret in _secrets(at, meant.secrets)]
    documents = [document, *secrets]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


def flow_document(sandbox: Sandbox, topics: Sequence[str], name: str) -> _Json:
    """A flow between the first and the last cluster; ``InvalidSpec`` where they are one."""
    source, target = _ends(sandbox)
    if source.name == target.name:
        raise InvalidSpec("a flow needs two clusters, and this sandbox has one")
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {
            "source": cluster_document(source),
            "target": cluster_document(target),
            "topics": {"include": list(topics)},
        },
    }


def _ends(sandbox: Sandbox) -> tuple[Cluster, Cluster]:
    return sandbox.clusters[0], sandbox.clusters[-1]


def cluster_document(cluster: Cluster) -> _Json:
    """As a manifest names it; with passwords where the sandbox has them."""
    if not cluster.sasl_servers:
        return {"alias": cluster.name, "bootstrapServers": cluster.bootstrap_servers}
    return {
        "alias": cluster.name,
        "bootstrapServers": cluster.sasl_servers,
        "tls": {"trustedCertificates": [{"secretName": f"{cluster.name}-ca", "key": "ca.crt"}]},
        "authentication": {
            "type": "ScramSha512",
            "username": USERNAME,
            "password": {"secretName": f"{cluster.name}-user", "key": "password"},
        },
    }


def _secrets(cluster: Cluster, folder: Path) -> list[_Json]:
    if not cluster.sasl_servers:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {key: (folder / name / key).read_text()},
        }
        for name, key in ((f"{cluster.name}-ca", "ca.crt"), (f"{cluster.name}-user", "password"))
    ]
