"""The output of ``headrace flow import mm2`` and ``export mm2``."""

from collections.abc import Sequence

import click

from headrace.cli.flow.flow_access import Document
from headrace.cli.screen.tables import show_rows
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.failover.mirror_maker import Export, Import, MirrorMaker, TargetGroupOwners
from headrace.connect.runtime.context import FlowContext

_MOST = 5


def import_document(
    context: FlowContext, plan: Import, groups: TargetGroupOwners, *, done: bool, syncs: int
) -> Document:
    """Return the plan or result of an import; ``syncs`` counts the offset syncs taken over."""
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
        "groupsTakenOver": [_group(one) for one in sorted(groups.synchronized)],
        "problems": [str(error) for error in groups.unread],
        "groupsLeftAlone": [_group(one) for one in groups.foreign],
        "notOfFlow": list(plan.not_of_flow),
        "notOfMirrorMaker": list(plan.not_of_mirror_maker),
        "startFrom": str(context.spec.start_from.mode),
    }


def _group(position: GroupPartition) -> Document:
    group, at = position
    return {"group": group, "topic": at.topic, "partition": at.partition}


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
    if taken := found["groupsTakenOver"]:
        click.echo(
            f"MirrorMaker 2 has set {len(taken)} offsets of groups of the target to earlier "
            f"checkpoints ({_groups_listed(taken)}): the flow continues them."
        )
    if left := found["groupsLeftAlone"]:
        click.echo(
            f"Consumers of the target have committed {len(left)} offsets "
            f"({_groups_listed(left)}): the flow does not change them."
        )
    for problem in found["problems"]:
        click.echo(f"But {problem}.")
    if found["done"]:
        click.echo(
            f"{found['flow']} goes on there, with {found['offsetSyncs']} offset syncs of "
            "MirrorMaker 2: leave that stopped, and start the flow."
        )
    else:
        click.echo("Nothing was changed.")


def _groups_listed(entries: Sequence[Document]) -> str:
    names = sorted({one["group"] for one in entries})
    more = f" and {len(names) - _MOST} more groups" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


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
                "repeated": plan.repeated.get(at, 0),
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
    repeated = {
        f"{one['topic']}/{one['partition']}": one["repeated"]
        for one in found["partitions"]
        if one["repeated"]
    }
    if repeated:
        largest = sorted(repeated.items(), key=lambda one: (-one[1], one[0]))
        named = ", ".join(f"{at} {count:,}" for at, count in largest[:_MOST])
        more = f" and {len(largest) - _MOST} more partitions" if len(largest) > _MOST else ""
        click.echo(
            f"Warning: the target has {sum(repeated.values()):,} records that are not in the "
            f"progress of {found['flow']} ({named}{more}), as after a kill of a driver. "
            "MirrorMaker 2 copies these records again. To prevent that, run the flow once more and "
            "stop it before the export."
        )
    if found["done"]:
        click.echo(
            f"MirrorMaker 2 goes on there, by {found['offsetsTopic']}: start it, and leave "
            f"{found['flow']} stopped."
        )
    else:
        click.echo("Nothing was changed.")
