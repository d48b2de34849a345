"""``headrace flow reset``: copies partitions again from ``spec.startFrom``."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from headrace.api import (
    FlowState,
    Pauses,
    ReplicationFlow,
    StartMode,
    TopicPartition,
    TopicPartitions,
    partitions_text,
)
from headrace.cli.flow.flow_access import open_answered
from headrace.cli.flow.flows import Flows, of_flows
from headrace.cli.screen.console import unfolded
from headrace.cli.screen.secrets_folder import secrets_option
from headrace.connect.takeover.reset_preview import Preview, preview_reset

Answer = dict[str, Any]

_WHAT_IS_COPIED = {
    StartMode.EARLIEST: "all records that are on the source are copied again",
    StartMode.LATEST: "records since the flow was made are copied",
    StartMode.TIMESTAMP: "records since spec.startFrom.timestamp are copied again",
    StartMode.OFFSETS: "records from spec.startFrom.offsets on are copied again",
}


@click.command()
@click.argument("flow")
@click.argument("partitions", metavar="TOPIC[/PARTITIONS]")
@click.option("--dry-run", is_flag=True, help="Plan only, without a change.")
@secrets_option("Folder of Secrets, DIR/<name>/<key>, for --dry-run on a flow of a cluster.")
@of_flows
def command(flows: Flows, flow: str, partitions: str, dry_run: bool, secrets: Path | None) -> None:
    """Copy partitions of FLOW again, from spec.startFrom.

    TOPIC/PARTITIONS is a topic, or partitions of it like orders/0-3,7. The stored position and
    reported losses are ignored. Records that are on the target already are appended again, and
    consumers read them twice. Other partitions are not affected.

    With --dry-run, the brokers must be reachable from this machine.

    Examples:
      headrace flow reset orders payments/0-3 --dry-run
      headrace flow reset orders payments/0-3
      headrace flow reset orders payments -n shop
    """
    answer = flows.request(flow, "reset", partitions=partitions, dry_run=dry_run)
    found = ReplicationFlow.model_validate(answer["flow"])
    meant = TopicPartitions.unpack(map(TopicPartitions.model_validate, answer["partitions"]))
    if dry_run:
        with open_answered(answer, secrets) as context:
            _print(found, preview_reset(context, meant))
        return
    spec = found.spec
    click.echo(
        f"{partitions_text(meant)} of {flow}: reset. By spec.startFrom.mode: "
        f"{spec.start_from.mode} "
        f"{_WHAT_IS_COPIED[spec.start_from.mode]}; what the target has of them stays there, and is "
        "there twice then."
    )
    say_what_rests(found, meant)


def say_what_rests(flow: ReplicationFlow, meant: Set[TopicPartition]) -> None:
    """Why these partitions are not copied yet, if they are not."""
    spec = flow.spec
    if spec.state is not FlowState.RUNNING:
        name = flow.metadata.name
        click.echo(f"But spec.state is {spec.state}: `headrace flow resume {name}` ends that.")
    if paused := Pauses.of(spec.paused_partitions).among(meant):
        click.echo(f"But paused, by spec.pausedPartitions: {partitions_text(paused)}.")


def _print(flow: ReplicationFlow, previews: Mapping[TopicPartition, Preview]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("PARTITION", "STORED", "STARTS AT", "END", "COPIED AGAIN"):
        table.add_column(column, no_wrap=True)
    for at, found in sorted(previews.items()):
        stored = "-" if found.stored is None else str(found.stored)
        offsets = (found.start, found.end, found.repeated)
        table.add_row(f"{at.topic}/{at.partition}", stored, *map(str, offsets))
    unfolded().print(table)
    repeated = sum(found.repeated for found in previews.values())
    click.echo(
        f"By spec.startFrom.mode: {flow.spec.start_from.mode} {repeated} offsets would be "
        "copied again (at most so many records), from those that are on the source now. "
        "Nothing was changed."
    )
