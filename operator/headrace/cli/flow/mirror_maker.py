"""``headrace flow import mm2`` and ``export mm2``: switch between MirrorMaker 2 and a flow."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from headrace.api import FlowState, ReplicationFlow, TopicPartition
from headrace.cli.flow.flow_access import Document, flows_here, of_flow, running_flow
from headrace.cli.flow.flow_verbs import Flows
from headrace.cli.screen.output import show_rows
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.failover.already_copied import already_copied
from headrace.connect.failover.export import Export, plan_export
from headrace.connect.failover.mirror_maker import (
    Import,
    MirrorMaker,
    TargetGroupOwners,
    do_import,
    find_groups,
    plan_import,
)
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal, InvalidSpec
from headrace.replication import copied_by_both
from headrace.sentences import first_few

_MAX_LISTED = 5


def import_document(
    context: FlowContext,
    plan: Import,
    groups: TargetGroupOwners,
    existing_counts: Mapping[TopicPartition, int | None],
    *,
    done: bool,
    syncs: int,
) -> Document:
    """Return the plan or result of an import as JSON.

    Args:
        context: The flow.
        plan: The plan.
        groups: Groups of the target.
        existing_counts: Number of offsets to copy that are already on the target.
        done: Whether the import was carried out.
        syncs: Number of offset syncs that were copied.
    """
    return {
        "flow": context.name,
        "done": done,
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "mirrorMaker": one.position,
                "stored": one.before.source_offset if one.before else None,
                "goesOnAt": one.goes_on_at,
                "sourceStart": one.source_start,
                "sourceEnd": one.source_end,
                "targetEnd": one.target_end,
                "alreadyOnTarget": existing_counts.get(at),
            }
            for at, one in plan.partitions.items()
        ],
        "offsetSyncs": syncs,
        "groupsTakenOver": [_group(one) for one in sorted(groups.synchronized)],
        "problems": [plan.problem] * bool(plan.problem) + [str(one) for one in groups.unread],
        "groupsLeftAlone": [_group(one) for one in groups.foreign],
        "notOfFlow": list(plan.not_of_flow),
        "notOfMirrorMaker": list(plan.not_of_mirror_maker),
        "startFrom": str(context.spec.start_from.mode),
    }


def _group(position: GroupPartition) -> Document:
    group, at = position
    return {"group": group, "topic": at.topic, "partition": at.partition}


def show_import(found: Document, *, wide: bool = False) -> None:
    """Print the plan or result of an import as a table and sentences."""
    partitions = found["partitions"]
    show_rows(
        (
            "PARTITION",
            "MIRRORMAKER 2",
            "STORED",
            "RESUMES AT",
            "END",
            "TO COPY",
            "ALREADY THERE",
        ),
        (
            (
                f"{one['topic']}/{one['partition']}",
                one["mirrorMaker"],
                one["stored"],
                one["goesOnAt"],
                one["sourceEnd"],
                max(0, one["sourceEnd"] - one["goesOnAt"]),
                one["alreadyOnTarget"],
            )
            for one in partitions
        ),
        wide=wide,
    )
    if repeated := sum(one["alreadyOnTarget"] or 0 for one in partitions):
        click.echo(
            f"Warning: the target already has {repeated:,} of the offsets to copy, as after a kill "
            "of MirrorMaker 2. The flow copies these records again."
        )
    for one in partitions:
        if one["goesOnAt"] < one["sourceStart"]:
            click.echo(
                f"{one['topic']}/{one['partition']} begins at {one['sourceStart']} on the source: "
                "earlier records are lost, and spec.onDataLoss decides how the flow continues."
            )
    if found["notOfFlow"]:
        click.echo(f"Not copied by the flow, and not imported: {', '.join(found['notOfFlow'])}.")
    if found["notOfMirrorMaker"]:
        click.echo(
            f"MirrorMaker 2 has copied nothing of {', '.join(found['notOfMirrorMaker'])}: the flow "
            f"begins with spec.startFrom: {found['startFrom']}."
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
            f"{found['flow']} resumes there, with {found['offsetSyncs']} offset syncs of "
            "MirrorMaker 2: leave MirrorMaker 2 stopped, and start the flow."
        )
    else:
        click.echo("Nothing was changed.")


def _groups_listed(entries: Sequence[Document]) -> str:
    return first_few(sorted({one["group"] for one in entries}), _MAX_LISTED, "more groups")


def export_document(
    context: FlowContext, mirror: MirrorMaker, plan: Export, *, done: bool
) -> Document:
    """Return the plan or result of an export as JSON."""
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
    """Print the plan or result of an export as a table and sentences."""
    show_rows(
        ("PARTITION", "MIRRORMAKER 2", "RESUMES AT"),
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
        counts = [f"{at} {count:,}" for at, count in largest]
        named = first_few(counts, _MAX_LISTED, "more partitions")
        click.echo(
            f"Warning: the target has {sum(repeated.values()):,} records that are not in the "
            f"progress of {found['flow']} ({named}), as after a kill of a driver. "
            "MirrorMaker 2 copies these records again. To prevent that, run the flow once more and "
            "stop it before the export."
        )
    if found["done"]:
        click.echo(
            f"MirrorMaker 2 resumes there, by {found['offsetsTopic']}: start it, and leave "
            f"{found['flow']} stopped."
        )
    else:
        click.echo("Nothing was changed.")


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
            help="Group of the workers: group.id of a Connect cluster. "
            "[default: <source alias>-mm2]",
        ),
        click.option(
            "--connector", metavar="NAME", help="Name of the connector on a Connect cluster."
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
@click.option("--again", is_flag=True, help="Import of partitions that the flow copied earlier.")
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
    mirror.check_no_members()
    plan = plan_import(context, mirror, again=options["again"])
    copies = frozenset(target_partition(context, at) for at in plan.partitions)
    mirror.check_stopped(copies, options["quiet_seconds"])
    plan = plan_import(context, mirror, again=options["again"])
    groups = find_groups(context, plan)
    there = already_copied(context, {at: one.left for at, one in plan.partitions.items()})
    syncs = 0 if options["dry_run"] else do_import(context, plan, groups)
    return import_document(context, plan, groups, there, done=not options["dry_run"], syncs=syncs)


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
    """Raise an error if the flow runs, or if another flow on this machine copies one of its topics.

    ``flows`` is None for a flow of a manifest that does not run on this machine. A run on this
    machine that does not respond is also an error, because it is unknown what it copies.
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
    """Raise an error unless the flow is stopped and its drivers have released all tasks.

    ``why`` is added to the message.
    """
    name = flow.metadata.name
    if flow.spec.state is not FlowState.STOPPED:
        raise InvalidSpec(
            f"flow {name}{why} is not stopped: stop it first, by "
            f"`headrace flow pause {name} --stop`"
        )
    units = flows.request(name, "status")["units"]
    if holders := sorted({unit["driverName"] for unit in units if unit["driverName"]}):
        raise Fatal(f"{', '.join(holders)} has not released all tasks of {name} yet")
