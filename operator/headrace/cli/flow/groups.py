"""``headrace groups``: where the consumer groups of a flow would go on at the target."""

from typing import Any

import click

from headrace.cli.flow.flow_access import Document, of_flow
from headrace.cli.flow.flows import Flows
from headrace.cli.screen.tables import show_groups
from headrace.connect.checkpoint.group_report import GroupPosition, GroupReport, report_groups
from headrace.connect.runtime.context import FlowContext
from headrace.errors import InvalidSpec


@click.command()
@of_flow("it need not run", show_groups)
def command(context: FlowContext, _: Flows | None) -> Document:
    """Show where each consumer group of FLOW would go on at the target now.

    A line for each group and partition: what the group has committed on the source, the last
    checkpoint (a source offset and its translation), how many source offsets lie between, and why
    there is no checkpoint, or an earlier one than there could be; below, by name, the share groups
    and Streams groups whose offsets are not translated. It asks the brokers, from here, and changes
    nothing. Without an answer of the source it shows the checkpoints.
    """
    if not context.spec.checkpoints.enabled:
        raise InvalidSpec(
            f"flow {context.name} writes no checkpoints: spec.checkpoints.enabled is false"
        )
    return _document(context, report_groups(context))


def _document(context: FlowContext, report: GroupReport) -> Document:
    return {
        "flow": context.name,
        "groups": [_entry(context, one) for one in report.positions],
        "notTranslated": [
            {"group": one.group, "kind": one.kind, "note": one.sentence}
            for one in report.untranslated
        ],
        "problems": list(report.problems),
    }


def _entry(context: FlowContext, position: GroupPosition) -> dict[str, Any]:
    group, at, committed, checkpoint, note, held = position
    return {
        "group": group,
        "topic": at.topic,
        "partition": at.partition,
        "targetTopic": context.policy.target_topic(at.topic),
        "committed": committed,
        "checkpoint": checkpoint
        and {"sourceOffset": checkpoint.source_offset, "targetOffset": checkpoint.target_offset},
        **({"targetCommitted": held} if context.spec.checkpoints.apply_to_groups else {}),
        "lag": position.lag,
        "note": note,
    }
