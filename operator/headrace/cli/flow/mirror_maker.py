"""``headrace flow import mm2`` and ``headrace flow export mm2``: hand over to and from MM2."""

from collections.abc import Callable
from typing import Any

import click

from headrace.api import FlowState, ReplicationFlow
from headrace.cli.flow.flow_access import Document, flows_here, of_flow, running_flow
from headrace.cli.flow.flows import Flows
from headrace.cli.flow.mirror_maker_view import (
    export_document,
    import_document,
    show_export,
    show_import,
)
from headrace.connect.failover.mirror_maker import (
    MirrorMaker,
    do_import,
    find_groups,
    plan_export,
    plan_import,
)
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal, InvalidSpec
from headrace.replication import copied_by_both


@click.group(name="import", short_help="Resume a flow where another mirror stopped.")
def import_() -> None:
    """Resume a flow where another mirror stopped."""


@click.group(name="export", short_help="Resume another mirror where a flow stopped.")
def export() -> None:
    """Resume another mirror where a flow stopped."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--offsets-topic",
            "topic",
            metavar="TOPIC",
            help="Topic with MirrorMaker 2's offsets, on the target: offset.storage.topic of a "
            "Connect cluster. [default: mm2-offsets.<source alias>.internal, of dedicated mode]",
        ),
        click.option(
            "--group",
            metavar="GROUP",
            help="Group of its workers: group.id of a Connect cluster. "
            "[default: <source alias>-mm2]",
        ),
        click.option(
            "--connector", metavar="NAME", help="Name of its connector on a Connect cluster."
        ),
        click.option(
            "--quiet-seconds",
            type=click.IntRange(min=1),
            default=5,
            show_default=True,
            metavar="SECONDS",
            help="Idle time required of MirrorMaker 2, in seconds.",
        ),
        click.option("--dry-run", is_flag=True, help="Plan only, without a change."),
    ):
        command = option(command)
    return command


@import_.command("mm2")
@click.option(
    "--again", is_flag=True, help="Also partitions that the flow copied before MirrorMaker 2."
)
@_options
@of_flow("does not run", show_import)
def import_mm2(context: FlowContext, flows: Flows | None, **options: Any) -> Document:
    """Resume FLOW where a MirrorMaker 2 stopped: its offsets become the flow's progress.

    Stop MirrorMaker 2 first. The flow must be stopped, or must not have been started yet. Copies,
    checkpoints and offset syncs of MirrorMaker 2 stay, and the flow continues them. The brokers
    must be reachable from this machine.

    Examples:
      headrace flow import mm2 -f flow.yaml --dry-run
      headrace flow import mm2 orders -n shop --secrets secrets
    """
    _check_stopped(context, flows)
    mirror = _mirror(context, options)
    plan = plan_import(context, mirror, again=options["again"])
    copies = frozenset(target_partition(context, at) for at in plan.partitions)
    mirror.check_stopped(copies, options["quiet_seconds"])
    plan = plan_import(context, mirror, again=options["again"])
    groups = find_groups(context, plan)
    syncs = 0 if options["dry_run"] else do_import(context, plan, groups)
    return import_document(context, plan, groups, done=not options["dry_run"], syncs=syncs)


@export.command("mm2")
@_options
@of_flow("does not run", show_export)
def export_mm2(context: FlowContext, flows: Flows | None, **options: Any) -> Document:
    """Resume a MirrorMaker 2 where FLOW stopped: the flow's progress becomes its offsets.

    Stop the flow (`headrace flow pause FLOW --stop`) and MirrorMaker 2 first. Start MirrorMaker 2
    afterwards, and leave the flow stopped. The brokers must be reachable from this machine.

    Examples:
      headrace flow export mm2 orders --dry-run
      headrace flow export mm2 orders -n shop --secrets secrets
    """
    _check_stopped(context, flows)
    mirror = _mirror(context, options)
    if options["topic"] and not mirror.exists:
        raise InvalidSpec(f"there is no topic {mirror.topic} on {context.target.name}")
    plan = plan_export(context, mirror)
    copies = frozenset(target_partition(context, at) for at in plan.positions)
    mirror.check_stopped(copies, options["quiet_seconds"])
    plan = plan_export(context, mirror)
    if not options["dry_run"]:
        if not mirror.exists:
            mirror.create()
        mirror.write(plan.positions)
    return export_document(context, mirror, plan, done=not options["dry_run"])


def _mirror(context: FlowContext, options: dict[str, Any]) -> MirrorMaker:
    return MirrorMaker.of(context, options["topic"], options["group"], options["connector"])


def _check_stopped(context: FlowContext, flows: Flows | None) -> None:
    """Raise an error if the flow runs, or if another flow here copies one of its topics.

    ``flows`` is None for a flow of a manifest that does not run on this machine. A run here that
    does not answer is also an error: nobody knows what it copies.
    """
    if flows is not None:
        _check_released(flows, running_flow(flows, context.name))
    if (here := flows_here()) is None:
        return
    topics = context.source.topics()
    for name in here.names():
        other = running_flow(here, name)
        if copied_by_both(context.flow, other, topics):
            beside = f" copies topics of {context.name}, and" if name != context.name else ""
            _check_released(here, other, beside)


def _check_released(flows: Flows, flow: ReplicationFlow, why: str = "") -> None:
    """Raise an error unless the flow is stopped and no driver holds a task of it."""
    name = flow.metadata.name
    if flow.spec.state is not FlowState.STOPPED:
        raise InvalidSpec(
            f"flow {name}{why} is not stopped: stop it first, by "
            f"`headrace flow pause {name} --stop`"
        )
    units = flows.request(name, "status")["units"]
    if holders := sorted({unit["driverName"] for unit in units if unit["driverName"]}):
        raise Fatal(f"{', '.join(holders)} has not released all tasks of {name} yet")
