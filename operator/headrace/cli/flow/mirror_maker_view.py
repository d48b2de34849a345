"""The output of ``headrace flow import mm2`` and ``export mm2``."""

import click

from headrace.cli.flow.flow_access import Document
from headrace.cli.screen.tables import show_rows
from headrace.connect.failover.importing import Export, Import
from headrace.connect.failover.mirror_maker_offsets import MirrorMaker
from headrace.connect.runtime.context import FlowContext


def import_document(context: FlowContext, plan: Import, *, done: bool, syncs: int) -> Document:
    """``syncs``: how many offset syncs were taken over."""
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
        "startFrom": str(context.spec.start_from.mode),
    }


def show_import(found: Document, *, wide: bool = False) -> None:
    """Print the plan or result of an import for people."""
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
        wide=wide,
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


def export_document(
    context: FlowContext, mirror: MirrorMaker, plan: Export, *, done: bool
) -> Document:
    """All that is known, for programs."""
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


def show_export(found: Document, *, wide: bool = False) -> None:
    """Print the plan or result of an export for people."""
    show_rows(
        ("PARTITION", "MIRRORMAKER 2", "GOES ON AT"),
        (
            (f"{one['topic']}/{one['partition']}", one["mirrorMaker"], one["goesOnAt"])
            for one in found["partitions"]
        ),
        wide=wide,
    )
    if found["done"]:
        click.echo(
            f"MirrorMaker 2 goes on there, by {found['offsetsTopic']}: start it, and leave "
            f"{found['flow']} stopped."
        )
    else:
        click.echo("Nothing was changed.")
