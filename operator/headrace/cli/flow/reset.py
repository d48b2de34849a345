"""``headrace flow reset`` and ``headrace flow rebuild``: copy partitions of a flow again."""

import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from headrace.api import (
    ConditionType,
    FlowState,
    Pauses,
    ReplicationFlow,
    ReplicationTask,
    StartMode,
    TaskPhase,
    TaskType,
    TopicPartition,
    TopicPartitions,
    find_condition,
    partitions_text,
)
from headrace.api.offsets import OffsetsMode
from headrace.cli.flow.flow_access import open_answered, running_flow
from headrace.cli.flow.flow_verbs import Flows, check_in_force, of_flows
from headrace.cli.screen.options import confirm, secrets_option, yes_option
from headrace.cli.screen.output import unfolded
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.preserving import Rebuild, copy_ends, delete_copies, plan_rebuild
from headrace.connect.takeover.starts import Preview, preview_reset
from headrace.errors import GaveUp

Answer = dict[str, Any]

_WHAT_IS_COPIED = {
    StartMode.EARLIEST: "all records that are on the source are copied again",
    StartMode.LATEST: "records since the creation of the flow are copied",
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

    TOPIC/PARTITIONS is a topic, or partitions of it like orders/0-3,7. The stored offset and
    reported losses are ignored. Records that the target already has are appended again, and
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
    if spec.offsets.mode is OffsetsMode.PRESERVED:
        click.echo(
            f"{partitions_text(meant)} of {flow}: reset. With offsets.mode: Preserved the copy is "
            "compared with the source, and records that the target has are not copied again. "
            f"`headrace flow rebuild {flow} TOPIC` deletes and rebuilds a copy."
        )
        print_pending_partitions(found, meant)
        return
    click.echo(
        f"{partitions_text(meant)} of {flow}: reset. With spec.startFrom.mode: "
        f"{spec.start_from.mode} "
        f"{_WHAT_IS_COPIED[spec.start_from.mode]}; records that the target already has "
        "stay there, and are then there twice."
    )
    print_pending_partitions(found, meant)


def print_pending_partitions(flow: ReplicationFlow, selected: Set[TopicPartition]) -> None:
    """Print why these partitions are not copied yet: they are paused, or the flow does not run."""
    spec = flow.spec
    if spec.state is not FlowState.RUNNING:
        name = flow.metadata.name
        click.echo(f"But spec.state is {spec.state}: run `headrace flow resume {name}`.")
    if paused := Pauses.of(spec.paused_partitions).among(selected):
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
        f"With spec.startFrom.mode: {flow.spec.start_from.mode} {repeated} offsets would be "
        "copied again, as the source is now (the number of records can be lower). "
        "Nothing was changed."
    )


_RESTS_TIMEOUT_S = 60.0
"""Time limit in seconds, within which tasks must pause and copies must stop growing.

A frozen driver loses its tasks after spec.drivers.leaseSeconds, which is 6 s by default.
"""
_QUIET_PERIOD_S = 3.0
"""Time in seconds for which copies must not grow before they are deleted.

Records that a driver read before the pause are written within this time.
"""
_POLL_S = 0.5
_IDLE = {TaskPhase.FAILED, TaskPhase.PAUSED, TaskPhase.CLOSED}


@click.command()
@click.argument("flow")
@click.argument("partitions", metavar="TOPIC[/PARTITIONS]")
@click.option("--dry-run", is_flag=True, help="Plan only, without a change.")
@yes_option
@secrets_option("Folder of Secrets, DIR/<name>/<key>, for a flow of a cluster.")
@of_flows
def rebuild_command(
    flows: Flows, flow: str, partitions: str, *, dry_run: bool, yes: bool, secrets: Path | None
) -> None:
    """Delete the copy of TOPIC, and let FLOW create it again with the offsets of the source.

    The command is for flows with offsets.mode: Preserved that have a stopped partition. Without
    PARTITIONS, or with all of them, the topic is deleted on the target. Single partitions, like
    orders/0-3,7, can be rebuilt only if the source begins after the end of their copies.

    The brokers must be reachable from this machine.

    Examples:
      headrace flow rebuild orders payments --dry-run
      headrace flow rebuild orders payments --yes
      headrace flow rebuild orders payments/0-3 -n shop --secrets secrets
    """
    answer = flows.request(flow, "reset", partitions=partitions, dry_run=True)
    meant = TopicPartitions.unpack(map(TopicPartitions.model_validate, answer["partitions"]))
    with open_answered(answer, secrets) as context:
        plan = plan_rebuild(context, meant)
        _print_rebuild(context, plan)
        if dry_run:
            click.echo("Nothing was changed.")
            return
        confirm(f"Delete {_what(plan)} on {context.target.name}", yes=yes)
        with _paused(flows, flow, partitions, meant):
            _wait_until_quiet(context, plan)
            delete_copies(context, plan)
            flows.request(flow, "reset", partitions=partitions, dry_run=False)
    click.echo(f"{_what(plan)} is deleted on {context.target.name}; {flow} copies it again.")
    print_pending_partitions(ReplicationFlow.model_validate(answer["flow"]), meant)


def _what(plan: Rebuild) -> str:
    if plan.topic_id:
        return f"topic {plan.topic}"
    there = {TopicPartition(plan.topic, at.partition) for at in plan.copies}
    return f"the content of {partitions_text(there)}"


def _print_rebuild(context: FlowContext, plan: Rebuild) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("PARTITION", "SOURCE", "COPY", "FILLED", "COPIED", "LOST"):
        table.add_column(column, no_wrap=True)
    filled = copied = lost = 0
    for at, one in plan.copies.items():
        gap = one.source_start if plan.topic_id else one.source_start - one.end
        again = one.source_end - one.source_start
        filled, copied, lost = filled + gap, copied + again, lost + one.only_there
        bounds = (f"{one.source_start}-{one.source_end}", f"{one.start}-{one.end}")
        counts = (gap, again, one.only_there)
        table.add_row(f"{at.topic}/{at.partition}", *bounds, *map(str, counts))
    unfolded().print(table)
    target = context.target.name
    click.echo(
        f"To be deleted: {_what(plan)} on {target}. Then {filled} offsets are filled, "
        f"because the source begins after them, and {copied} are copied (the number of records can "
        "be lower)."
    )
    if lost:
        click.echo(f"{lost} offsets are on {target} only: what they hold is lost.")
    if plan.topic_id:
        click.echo(
            f"Consumers of {plan.topic} get errors until it exists again, and then the records "
            "that are already copied. The offsets of groups in it are deleted with it; with "
            "spec.checkpoints.applyToGroups the flow sets them again."
        )
    else:
        click.echo(
            "Consumers that have reached the end of these partitions resume at the source's start."
        )


@contextmanager
def _paused(
    flows: Flows, flow: str, partitions: str, selected: Set[TopicPartition]
) -> Iterator[None]:
    """Pause partitions during the block. Partitions that were already paused stay paused.

    Without the pause, a batch that a driver writes late would get a wrong offset in the new copy.
    """
    pauses = Pauses.of(running_flow(flows, flow).spec.paused_partitions)
    copied = partitions_text(selected - pauses.among(selected))
    answer: Answer = {}
    if copied:
        answer = flows.request(flow, "pause-partitions", partitions=copied, paused=True)
    try:
        check_in_force(flow, answer)
        deadline_s = time.monotonic() + _RESTS_TIMEOUT_S
        while busy := _busy(flows, flow, partitions, selected):
            if time.monotonic() > deadline_s:
                raise GaveUp(
                    f"{busy} did not pause {partitions} within {_RESTS_TIMEOUT_S:.0f} s: nothing "
                    f"was deleted; `headrace task describe {busy}` shows its state"
                )
            time.sleep(_POLL_S)
        yield
    finally:
        if copied:
            flows.request(flow, "pause-partitions", partitions=copied, paused=False)


def _busy(flows: Flows, flow: str, partitions: str, selected: Set[TopicPartition]) -> str:
    """Return the name of a task that may still copy some of the partitions, or an empty string."""
    answer = flows.request(flow, "reset", partitions=partitions, dry_run=True)
    spec = ReplicationFlow.model_validate(answer["flow"]).spec
    if spec.state is FlowState.STOPPED:
        return ""
    for unit in flows.request(flow, "status")["units"]:
        if unit["type"] != TaskType.SOURCE_TASK:
            continue
        described = flows.request(flow, "describe", task=unit["name"])
        task = ReplicationTask.model_validate(described)
        held = TopicPartitions.unpack(task.spec.partitions)
        paused = Pauses.of(spec.paused_partitions).among(held)
        if not paused & selected or task.status.phase in _IDLE:
            continue
        paused_now = find_condition(task.status.conditions, ConditionType.PARTITIONS_PAUSED)
        if paused_now is None or partitions_text(paused) not in paused_now.message:
            return task.metadata.name
    return ""


def _wait_until_quiet(context: FlowContext, plan: Rebuild) -> None:
    deadline_s = time.monotonic() + _RESTS_TIMEOUT_S
    ends, since_s = copy_ends(context, plan), time.monotonic()
    while time.monotonic() - since_s < _QUIET_PERIOD_S:
        time.sleep(_POLL_S)
        if (now := copy_ends(context, plan)) != ends:
            ends, since_s = now, time.monotonic()
        if time.monotonic() > deadline_s:
            raise GaveUp(
                f"{plan.topic} on {context.target.name} still grows, though the flow has paused "
                "it: another client writes there; stop it first. Nothing was deleted"
            )
