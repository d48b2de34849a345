"""``headrace reverse``: the flow back, after a fail-over."""

from pathlib import Path
from typing import Any

import click
import yaml

from headrace.api import ReplicationFlow
from headrace.cli.failover_view import sentence
from headrace.cli.flow_access import flow_options, open_context, open_flow
from headrace.cli.flows import Flows, of_flows
from headrace.connect.fail_over import survey_target
from headrace.connect.reversing import begin, hand_over_groups, survey_back
from headrace.errors import InvalidSpec

_SUFFIX = "-back"


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the manifest and what is unsent, only.")
@flow_options("it does not run")
@of_flows
def command(
    flows: Flows, flow: str | None, dry_run: bool, file: Path | None, secrets: Path | None
) -> None:
    """Print the manifest of the flow back to the source of FLOW, which is failed over.

    It copies what came to the target since the switch: where it begins is stored at the old source,
    which must be back. What the old source still had and never sent is counted; it stays there, and
    what is copied follows it.
    """
    with open_flow(flows, flow, file, secrets) as there:
        reverse = reversed_flow(there.flow)
        found = survey_target(there)
        # The folder of Secrets is that of the flow: both have the same clusters.
        with open_context(reverse, there.source_access.secrets) as back:
            begins = survey_back(there, back, found)
            if not dry_run:
                begin(back, begins)
                if there.spec.checkpoints.enabled:
                    hand_over_groups(there, back)
        unsent = {at: one.unsent for at, one in begins.items() if one.unsent}
    click.echo(yaml.safe_dump(_document(reverse), sort_keys=False), nl=False)
    if unsent:
        click.echo(
            f"{there.source.name} has {sentence(unsent)} that were never sent to "
            f"{there.target.name}: they stay there, before what is copied back.",
            err=True,
        )


def reversed_flow(flow: ReplicationFlow) -> ReplicationFlow:
    """With its clusters exchanged; ``InvalidSpec`` where copies have other names."""
    if flow.spec.policy.type != "Identity":
        raise InvalidSpec(
            f"the flow back is made with spec.policy.type: Identity only, and {flow.metadata.name} "
            f"has {flow.spec.policy.type}: its copies have other names, so that a flow of your own "
            "in the other direction takes nothing twice"
        )
    name = flow.metadata.name
    name = name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"
    spec = flow.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec |= {"source": spec["target"], "target": spec["source"]}
    spec["source"].pop("replicationFactor", None)
    spec.pop("state", None)
    metadata = {"name": name}
    if flow.metadata.namespace:
        metadata["namespace"] = flow.metadata.namespace
    return ReplicationFlow.model_validate({"metadata": metadata, "spec": spec})


def _document(flow: ReplicationFlow) -> dict[str, Any]:
    document = flow.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"apiVersion": flow.api_version, "kind": flow.kind, **document}
