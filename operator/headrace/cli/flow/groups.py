"""``headrace flow groups``: shows where consumer groups would resume on the target."""

from typing import Any

import click

from headrace.cli.flow.flow_access import Document, of_flow
from headrace.cli.flow.flow_verbs import Flows
from headrace.cli.screen.output import show_groups, watch_option
from headrace.connect.checkpoint.group_report import GroupPosition, GroupReport, report_groups
from headrace.connect.runtime.context import FlowContext
from headrace.errors import InvalidSpec


def names(document: Document) -> list[str]:
    """Return the names of groups for ``-o name``."""
    return [f"group/{name}" for name in dict.fromkeys(one["group"] for one in document["groups"])]


@click.command()
@watch_option
@of_flow("runs or does not run", show_groups, names, only_reads=True)
def command(context: FlowContext, _: Flows | None) -> Document:
    """Show where each consumer group of FLOW would resume on the target now.

    The table has a line for each group and partition: the offset that the group has committed on
    the source, the last checkpoint and its translation, and the number of source offsets from the
    checkpoint to the committed offset. The note gives the reason if there is no checkpoint, or if
    the group would not resume exactly at its committed offset. Below the table are the share groups
    and Streams groups that are not translated.

    The command contacts the brokers from this machine and changes nothing. If the source does not
    answer, only the checkpoints are shown.

    Examples:
      headrace flow groups orders
      headrace flow groups orders --watch
      headrace flow groups -f flow.yaml -o json
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
