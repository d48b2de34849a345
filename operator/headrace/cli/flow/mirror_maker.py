"""``headrace import mm2`` and ``export mm2``: a flow and a MirrorMaker 2 take turns."""

from collections.abc import Callable
from typing import Any

import click

from headrace.api import FlowState
from headrace.cli.flow.flow_access import Document, of_flow
from headrace.cli.flow.flows import Flows
from headrace.cli.flow.mirror_maker_view import (
    export_document,
    import_document,
    show_export,
    show_import,
)
from headrace.connect.failover.importing import do_import, plan_export, plan_import
from headrace.connect.failover.mirror_maker_offsets import MirrorMaker
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal, InvalidSpec


@click.group(name="import", short_help="go on where another mirror stopped")
def import_() -> None:
    """A flow goes on where another mirror stopped."""


@click.group(name="export", short_help="another mirror goes on where a flow stopped")
def export() -> None:
    """Another mirror goes on where a flow stopped."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--offsets-topic",
            "topic",
            metavar="TOPIC",
            help="Where MirrorMaker 2 keeps positions, on the target: offset.storage.topic of a "
            "Connect cluster. Default: mm2-offsets.<source alias>.internal, of dedicated mode.",
        ),
        click.option(
            "--group",
            metavar="GROUP",
            help="Of its workers: group.id of a Connect cluster. Default: <source alias>-mm2.",
        ),
        click.option("--connector", metavar="NAME", help="Its name on a Connect cluster."),
        click.option(
            "--quiet-seconds",
            type=click.IntRange(min=1),
            default=5,
            show_default=True,
            help="So long MirrorMaker 2 may write nothing.",
        ),
        click.option("--dry-run", is_flag=True, help="Print what it would do; change nothing."),
    ):
        command = option(command)
    return command


@import_.command("mm2")
@click.option("--again", is_flag=True, help="Also where the flow has copied before MirrorMaker 2.")
@_options
@of_flow("it does not run", show_import)
def import_mm2(context: FlowContext, flows: Flows | None, **options: Any) -> Document:
    """FLOW goes on where a MirrorMaker 2 stopped: its positions become the flow's progress.

    Stop MirrorMaker 2 first; the flow must not run yet, or be stopped. Copies, checkpoints and
    offset syncs of MirrorMaker 2 stay, and the flow goes on with them. It asks the brokers, from
    here: they must be reachable.
    """
    _check_flow(context, flows)
    mirror = _mirror(context, options)
    plan = plan_import(context, mirror, again=options["again"])
    copies = frozenset(target_partition(context, at) for at in plan.partitions)
    mirror.check_stopped(copies, options["quiet_seconds"])
    plan = plan_import(context, mirror, again=options["again"])
    syncs = 0 if options["dry_run"] else do_import(context, plan)
    return import_document(context, plan, done=not options["dry_run"], syncs=syncs)


@export.command("mm2")
@_options
@of_flow("it does not run", show_export)
def export_mm2(context: FlowContext, flows: Flows | None, **options: Any) -> Document:
    """A MirrorMaker 2 goes on where FLOW stopped: the flow's progress becomes its positions.

    Stop the flow first (`headrace pause --stop`), and MirrorMaker 2. Start MirrorMaker 2
    afterwards, and leave the flow stopped. It asks the brokers, from here: they must be reachable.
    """
    _check_flow(context, flows)
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


def _check_flow(context: FlowContext, flows: Flows | None) -> None:
    """``flows``: None where nobody runs it."""
    if flows is None:
        return
    if context.spec.state is not FlowState.STOPPED:
        raise InvalidSpec(
            f"flow {context.name} is not stopped: `headrace pause --stop {context.name}` comes "
            "first"
        )
    units = flows.request(context.name, "status")["units"]
    if holders := sorted({unit["driverName"] for unit in units if unit["driverName"]}):
        raise Fatal(f"{', '.join(holders)} has not released all tasks of {context.name} yet")
