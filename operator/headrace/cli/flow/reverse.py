"""``headrace flow reverse``: prints the reverse flow after a fail-over."""

from pathlib import Path
from typing import Any

import click
import yaml

from headrace.api import ReplicationFlow
from headrace.api.offsets import OffsetsMode
from headrace.cli.flow.failover_report import sentence
from headrace.cli.flow.flow_access import flow_options, open_context, open_flow
from headrace.cli.flow.flow_verbs import Flows, of_flows
from headrace.connect.failover.failback import (
    begin,
    check_switched,
    hand_over_groups,
    return_groups,
    survey_back,
    unreplicated_offsets,
)
from headrace.connect.failover.survey import Survey, allow_writes, still_denied, survey_target
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import InvalidSpec
from headrace.kafka import Position
from headrace.replication import Applied

_SUFFIX = "-back"
_LEFT = {
    Applied.FOREIGN: "consumers of the old source have committed",
    Applied.LATER: "the group is already further ahead there",
    Applied.ACTIVE: "it has members there",
    Applied.REFUSED: "the old source refuses it",
}


@click.command()
@click.option("--dry-run", is_flag=True, help="Manifest and counts only, without a change.")
@flow_options("does not run")
@of_flows
def command(
    flows: Flows, flow: str | None, dry_run: bool, file: Path | None, secrets: Path | None
) -> None:
    """Print the manifest of the reverse flow of FLOW, which is failed over.

    With policy Identity, the reverse flow copies the records that were written to the target since
    the fail-over. Its start offsets are stored on the old source, which must be reachable. The
    command reports how many records of the old source were never copied. They stay there, at lower
    offsets than the records that are copied back.

    With policy Default, the reverse flow copies the target's topics that are not copies, from
    their start and with a prefix. Groups resume on the old source at the record that they had
    reached in the copies.

    Examples:
      headrace flow reverse orders --dry-run
      headrace flow reverse orders > back.yaml
      headrace flow reverse orders -n shop --secrets secrets > back.yaml
    """
    with open_flow(flows, flow, file, secrets) as there:
        reverse = reversed_flow(there.flow)
        found = survey_target(there)
        if there.spec.replication_policy.type == "Default":
            _return_groups(there, found, dry_run=dry_run)
            if not dry_run and file is None:  # applications may write to the source again
                flows.request(there.name, "watch-source", enabled=False)
            click.echo(yaml.safe_dump(_document(reverse), sort_keys=False), nl=False)
            return
        # Both flows have the same clusters, so they use the same folder of Secrets.
        with open_context(reverse, there.source_access.secrets) as back:
            begins = survey_back(there, back, found)
            if not dry_run:
                allow_writes(there)  # the reverse flow also writes to these topics
                begin(back, begins)
                if there.spec.checkpoints.enabled:
                    hand_over_groups(there, back)
        left = {at: one.unreplicated_count for at, one in begins.items() if one.unreplicated_count}
    click.echo(yaml.safe_dump(_document(reverse), sort_keys=False), nl=False)
    if left:
        click.echo(
            f"{there.source.name} has {sentence(left)} that were never sent to "
            f"{there.target.name}: they remain there, before records that are copied back.",
            err=True,
        )


def _return_groups(forward: FlowContext, found: Survey, *, dry_run: bool) -> None:
    """Set the groups' offsets on the old source, and report records that will not be copied.

    Applications may have written records into copies. The reverse flow does not copy these records.
    """
    check_switched(forward, found)
    copies = {target_partition(forward, at): one for at, one in found.partitions.items()}
    ends = forward.target.offsets(copies, Position.LATEST)
    behind = {
        at: more
        for at, one in copies.items()
        if one.switch and (more := ends[at] - one.switch.target_end) > 0
    }
    if behind:
        click.echo(
            f"{forward.target.name} has {sentence(behind)} in copies, written since the fail-over: "
            "the reverse flow does not copy copies, so applications must write to topics of the "
            "target that are not copies.",
            err=True,
        )
    left = unreplicated_offsets(found, forward.source.offsets(found.partitions, Position.LATEST))
    if left:
        click.echo(
            f"{forward.source.name} has {sentence(left)} that were never sent to "
            f"{forward.target.name}: they remain there, and groups read them next.",
            err=True,
        )
    if denied := still_denied(forward):
        click.echo(
            f"Writes to {', '.join(sorted(denied))} of {forward.source.name} stay denied until "
            f"`headrace failover {forward.flow.metadata.name} --abort`.",
            err=True,
        )
    if not forward.spec.checkpoints.enabled:
        return
    returned = return_groups(forward, found, dry_run=dry_run)
    verb = "would resume" if dry_run else "resumes"
    for (group, at), offset in sorted(returned.moved.items()):
        click.echo(f"Group {group} {verb} at {at.topic}/{at.partition} {offset}.", err=True)
    for (group, at), how in sorted(returned.kept.items()):
        why = _LEFT[how]
        click.echo(f"Group {group}, {at.topic}/{at.partition}, is not changed: {why}.", err=True)
    for group, at in sorted(returned.unknown):
        click.echo(
            f"Group {group}, {at.topic}/{at.partition}, keeps its offset: no offset sync up "
            "to this offset is known.",
            err=True,
        )
    for problem in returned.problems:
        click.echo(f"But {problem}.", err=True)


def reversed_flow(flow: ReplicationFlow) -> ReplicationFlow:
    """Return the flow with source and target exchanged.

    Raise ``InvalidSpec`` if the replication policy or ``offsets.mode`` allows no reverse flow.
    """
    if flow.spec.replication_policy.type not in ("Identity", "Default"):
        raise InvalidSpec(
            "the reverse flow requires spec.replicationPolicy.type: Identity or Default, and "
            f"{flow.metadata.name} has {flow.spec.replication_policy.type}: write your own flow in "
            "the other direction, with topics that are not copies"
        )
    if flow.spec.offsets.mode is OffsetsMode.PRESERVED:
        raise InvalidSpec(
            f"{flow.metadata.name} has offsets.mode: Preserved, which headrace flow reverse "
            "does not support: write a flow in the other direction with offsets.mode: Preserved. "
            "It compares all records of the old source, resumes where they are equal, and rejects "
            "a partition with records that were never copied, with the first offset"
        )
    name = flow.metadata.name
    name = name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"
    spec = flow.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec |= {"source": spec["target"], "target": spec["source"]}
    for field in ("replicationFactor", "compression"):
        spec["source"].pop(field, None)
    for field in (
        "state",
        *(["startFrom"] if flow.spec.replication_policy.type == "Default" else []),
    ):
        spec.pop(field, None)
    metadata = {"name": name}
    if flow.metadata.namespace:
        metadata["namespace"] = flow.metadata.namespace
    return ReplicationFlow.model_validate({"metadata": metadata, "spec": spec})


def _document(flow: ReplicationFlow) -> dict[str, Any]:
    document = flow.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"apiVersion": flow.api_version, "kind": flow.kind, **document}
