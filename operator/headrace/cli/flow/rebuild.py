"""``headrace flow rebuild``: deletes copies with preserved offsets and creates them again."""

import time
from collections.abc import Iterator, Set
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
    TaskPhase,
    TaskType,
    TopicPartition,
    TopicPartitions,
    condition,
    partitions_text,
)
from headrace.cli.flow.flow_access import open_answered
from headrace.cli.flow.flows import Flows, of_flows
from headrace.cli.flow.reset import say_what_rests
from headrace.cli.screen.confirm import confirm, yes_option
from headrace.cli.screen.console import unfolded
from headrace.cli.screen.secrets_folder import secrets_option
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.rebuilding import Rebuild, copy_ends, delete_copies, plan_rebuild
from headrace.errors import GaveUp

Answer = dict[str, Any]

_RESTS_WITHIN_S = 60.0
"""A driver that is frozen loses its tasks after spec.drivers.leaseSeconds, 6 s."""
_QUIET_S = 3.0
"""So long the copies do not grow any more: what was read before the pause is written by then."""
_POLL_S = 0.5
_IDLE = {TaskPhase.FAILED, TaskPhase.PAUSED, TaskPhase.CLOSED}


@click.command()
@click.argument("flow")
@click.argument("partitions", metavar="TOPIC[/PARTITIONS]")
@click.option("--dry-run", is_flag=True, help="Plan only, without a change.")
@yes_option
@secrets_option("Folder of Secrets, DIR/<name>/<key>, for a flow of a cluster.")
@of_flows
def command(
    flows: Flows, flow: str, partitions: str, *, dry_run: bool, yes: bool, secrets: Path | None
) -> None:
    """Delete the copy of TOPIC, and let FLOW create it again with the offsets of the source.

    The command is for flows with offsets.mode: Preserved that have a stopped partition. Without
    PARTITIONS, or with all of them, the topic is deleted on the target. Single partitions, like
    orders/0-3,7, can be rebuilt only if the source begins behind the end of their copies.

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
        _print(context, plan)
        if dry_run:
            click.echo("Nothing was changed.")
            return
        confirm(f"Delete {_what(plan)} on {context.target.name}", yes=yes)
        with _paused(flows, flow, partitions, meant):
            _wait_until_quiet(context, plan)
            delete_copies(context, plan)
            flows.request(flow, "reset", partitions=partitions, dry_run=False)
    click.echo(f"{_what(plan)} is deleted on {context.target.name}; {flow} copies it again.")
    say_what_rests(ReplicationFlow.model_validate(answer["flow"]), meant)


def _what(plan: Rebuild) -> str:
    if plan.topic_id:
        return f"topic {plan.topic}"
    there = {TopicPartition(plan.topic, at.partition) for at in plan.copies}
    return f"what {partitions_text(there)} holds"


def _print(context: FlowContext, plan: Rebuild) -> None:
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
        f"To be deleted: {_what(plan)} on {target}. Then {filled} offsets are filled, as the "
        f"source begins behind them, and {copied} are copied (at most so many records)."
    )
    if lost:
        click.echo(f"{lost} offsets are on {target} only: what they hold is lost.")
    if plan.topic_id:
        click.echo(
            f"Readers of {plan.topic} get errors until it is there again, then what is copied so "
            "far. The offsets of groups in it are deleted with it; with "
            "spec.checkpoints.applyToGroups the flow sets them again."
        )
    else:
        click.echo(
            "Readers that have reached the end of these partitions go on where the source begins."
        )


@contextmanager
def _paused(flows: Flows, flow: str, partitions: str, meant: Set[TopicPartition]) -> Iterator[None]:
    """Nobody copies them while the block lasts: a batch that comes late would lie in the new copy,
    at another offset. Those that were paused before stay so."""
    changed = flows.request(flow, "pause-partitions", partitions=partitions, paused=True)["changed"]
    try:
        deadline_s = time.monotonic() + _RESTS_WITHIN_S
        while busy := _busy(flows, flow, partitions, meant):
            if time.monotonic() > deadline_s:
                raise GaveUp(
                    f"{busy} did not pause {partitions} within {_RESTS_WITHIN_S:.0f} s: nothing "
                    f"was deleted; `headrace task describe {busy}` says how it is"
                )
            time.sleep(_POLL_S)
        yield
    finally:
        if changed:
            flows.request(flow, "pause-partitions", partitions=partitions, paused=False)


def _busy(flows: Flows, flow: str, partitions: str, meant: Set[TopicPartition]) -> str:
    """A task that may still copy some of them; empty when there is none."""
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
        if not paused & meant or task.status.phase in _IDLE:
            continue
        paused_now = condition(task.status.conditions, ConditionType.PARTITIONS_PAUSED)
        if paused_now is None or partitions_text(paused) not in paused_now.message:
            return task.metadata.name
    return ""


def _wait_until_quiet(context: FlowContext, plan: Rebuild) -> None:
    deadline_s = time.monotonic() + _RESTS_WITHIN_S
    ends, since_s = copy_ends(context, plan), time.monotonic()
    while time.monotonic() - since_s < _QUIET_S:
        time.sleep(_POLL_S)
        if (now := copy_ends(context, plan)) != ends:
            ends, since_s = now, time.monotonic()
        if time.monotonic() > deadline_s:
            raise GaveUp(
                f"{plan.topic} on {context.target.name} still grows, though the flow has paused "
                "it: another client writes there; stop it first. Nothing was deleted"
            )
