"""``headrace import mm2`` and ``export mm2``: a flow and a MirrorMaker 2 take turns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.api import FlowState
from headrace.cli.flow.flow_access import flow_options, open_flow
from headrace.cli.flow.flows import Flows, of_flows
from headrace.cli.screen.output import output_option, show
from headrace.cli.screen.tables import show_rows
from headrace.connect.failover.importing import Export, Import, do_import, plan_export, plan_import
from headrace.connect.failover.mirror_maker_offsets import MirrorMaker
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal, InvalidSpec

_Json = dict[str, Any]


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
@flow_options("it does not run")
@output_option
@of_flows
def import_mm2(
    flows: Flows,
    flow: str | None,
    file: Path | None,
    secrets: Path | None,
    output: str | None,
    **options: Any,
) -> None:
    """FLOW goes on where a MirrorMaker 2 stopped: its positions become the flow's progress.

    Stop MirrorMaker 2 first; the flow must not run yet, or be stopped. Copies, checkpoints and
    offset syncs of MirrorMaker 2 stay, and the flow goes on with them. It asks the brokers, from
    here: they must be reachable.
    """
    with open_flow(flows, flow, file, secrets) as context:
        _check_flow(context, None if file else flows)
        mirror = _mirror(context, options)
        plan = plan_import(context, mirror, again=options["again"])
        copies = frozenset(target_partition(context, at) for at in plan.partitions)
        mirror.check_stopped(copies, options["quiet_seconds"])
        plan = plan_import(context, mirror, again=options["again"])
        syncs = 0 if options["dry_run"] else do_import(context, plan)
        found = _import_document(context, plan, done=not options["dry_run"], syncs=syncs)
    show(found, output, _show_import)


@export.command("mm2")
@_options
@flow_options("it does not run")
@output_option
@of_flows
def export_mm2(
    flows: Flows,
    flow: str | None,
    file: Path | None,
    secrets: Path | None,
    output: str | None,
    **options: Any,
) -> None:
    """A MirrorMaker 2 goes on where FLOW stopped: the flow's progress becomes its positions.

    Stop the flow first (`headrace pause --stop`), and MirrorMaker 2. Start MirrorMaker 2
    afterwards, and leave the flow stopped. It asks the brokers, from here: they must be reachable.
    """
    with open_flow(flows, flow, file, secrets) as context:
        _check_flow(context, None if file else flows)
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
        found = _export_document(context, mirror, plan, done=not options["dry_run"])
    show(found, output, _show_export)


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


def _import_document(context: FlowContext, plan: Import, *, done: bool, syncs: int) -> _Json:
    return {
        "flow": context.name,
        "done": done,
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "mirrorMaker": one.position,
                "stored": one.before.source_offset if one.before else None,
                "goesOnAt": one.before.source_offset if one.stays and one.before else offset,
                "sourceStart": one.source_start,
                "sourceEnd": one.source_end,
                "targetEnd": one.target_end,
            }
            for at, one in plan.partitions.items()
            for offset in [one.source_offset]
        ],
        "offsetSyncs": syncs,
        "notOfFlow": list(plan.not_of_flow),
        "notOfMirrorMaker": list(plan.not_of_mirror_maker),
        "startFrom": str(context.spec.start_from),
    }


def _show_import(found: _Json) -> None:
    partitions = found["partitions"]
    show_rows(
        ("PARTITION", "MIRRORMAKER 2", "STORED", "GOES ON AT", "END", "TO COPY"),
        (
            (
                f"{one['topic']}/{one['partition']}",
                one["mirrorMaker"],
                one["stored"],
                one["goesOnAt"],
                one["sourceEnd"],
                max(0, one["sourceEnd"] - one["goesOnAt"]),
            )
            for one in partitions
        ),
    )
    for one in partitions:
        if one["goesOnAt"] < one["sourceStart"]:
            click.echo(
                f"{one['topic']}/{one['partition']} begins at {one['sourceStart']} on the source: "
                "what was before is lost, and spec.onDataLoss decides how the flow goes on."
            )
    if found["notOfFlow"]:
        click.echo(f"Not of the flow, and not taken over: {', '.join(found['notOfFlow'])}.")
    if found["notOfMirrorMaker"]:
        click.echo(
            f"MirrorMaker 2 has copied nothing of {', '.join(found['notOfMirrorMaker'])}: the flow "
            f"begins by spec.startFrom: {found['startFrom']}."
        )
    if found["done"]:
        click.echo(
            f"{found['flow']} goes on there, with {found['offsetSyncs']} offset syncs of "
            "MirrorMaker 2: leave that stopped, and start the flow."
        )
    else:
        click.echo("Nothing was changed.")


def _export_document(
    context: FlowContext, mirror: MirrorMaker, plan: Export, *, done: bool
) -> _Json:
    return {
        "flow": context.name,
        "done": done,
        "offsetsTopic": mirror.topic,
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "mirrorMaker": plan.before.get(at),
                "goesOnAt": offset,
            }
            for at, offset in plan.positions.items()
        ],
    }


def _show_export(found: _Json) -> None:
    show_rows(
        ("PARTITION", "MIRRORMAKER 2", "GOES ON AT"),
        (
            (f"{one['topic']}/{one['partition']}", one["mirrorMaker"], one["goesOnAt"])
            for one in found["partitions"]
        ),
    )
    if found["done"]:
        click.echo(
            f"MirrorMaker 2 goes on there, by {found['offsetsTopic']}: start it, and leave "
            f"{found['flow']} stopped."
        )
    else:
        click.echo("Nothing was changed.")
